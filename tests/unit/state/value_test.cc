// Variables of a program as parts of the state: every type comes back bit for bit, and another type is refused.
#include "holdfast/state/value.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What `from` holds, after a save of it and a resume into `to`.
template <class T>
T resumed(T from, T to) {
  TrainState before, after;
  before.value("it", from);
  after.value("it", to);
  const auto snapshot = stage(before);
  after.load(*snapshot, {});
  EXPECT_EQ(digest(after), digest(*snapshot));
  return to;
}

enum class Phase : std::uint8_t { warm_up, main };

TEST(Value, NumbersComeBackBitForBit) {
  EXPECT_EQ(resumed(true, false), true);
  EXPECT_EQ(resumed(-7, 0), -7);
  EXPECT_EQ(resumed(std::numeric_limits<std::uint64_t>::max(), std::uint64_t{0}),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(resumed(std::numeric_limits<std::int64_t>::min(), std::int64_t{0}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(resumed('x', 'y'), 'x');
  EXPECT_EQ(resumed(Phase::main, Phase::warm_up), Phase::main);
  EXPECT_EQ(resumed(0.1F, 0.0F), 0.1F);
  EXPECT_TRUE(std::signbit(resumed(-0.0, 1.0)));
  const auto odd = std::bit_cast<double>(std::uint64_t{0x7FF8'0000'DEAD'BEEF});
  EXPECT_EQ(std::bit_cast<std::uint64_t>(resumed(odd, 0.0)), 0x7FF8'0000'DEAD'BEEF);
  EXPECT_EQ(resumed(std::numeric_limits<double>::infinity(), 0.0), std::numeric_limits<double>::infinity());
}

TEST(Value, TextComesBackWhateverIsInIt) {
  for (const std::string& text : {std::string(), std::string("4 → 2"), std::string("a\0b", 3),
                                  std::string("\xFF\xFE raw"), std::string(100'000, 'z')}) {
    EXPECT_EQ(resumed(text, std::string("other")), text);
  }
}

TEST(Value, RowsComeBack) {
  EXPECT_EQ(resumed(std::vector<float>{0.1F, -2}, {}), (std::vector<float>{0.1F, -2}));
  EXPECT_EQ(resumed(std::vector<double>{}, {1, 2}), std::vector<double>());
  EXPECT_EQ(resumed(std::vector<std::uint16_t>{65535, 1}, {}), (std::vector<std::uint16_t>{65535, 1}));
  EXPECT_EQ(resumed(std::vector<bool>{true, false, true}, {}), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(resumed(std::vector<std::string>{"a", ""}, {}), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(resumed(std::vector<Phase>{Phase::main}, {}), std::vector<Phase>{Phase::main});
  EXPECT_EQ(resumed(std::array<double, 3>{1, 2, 3}, {}), (std::array<double, 3>{1, 2, 3}));
  using Pairs = std::vector<std::pair<int, std::optional<std::string>>>;
  const Pairs pairs = {{1, "one"}, {2, std::nullopt}};
  EXPECT_EQ(resumed(pairs, Pairs{{9, "nine"}, {9, "nine"}, {9, "nine"}}), pairs);
  EXPECT_EQ(resumed(std::optional<double>(), std::optional<double>(3)), std::nullopt);
  EXPECT_EQ(resumed(std::optional<double>(2), std::optional<double>()), 2.0);
}

template <class Engine>
void engine_continues() {
  Engine engine(7), other(8);
  engine.discard(1234);
  other = resumed(engine, other);
  EXPECT_EQ(engine, other);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(engine(), other()) << i;
}

TEST(Value, MapsComeBackWithTheRecordedKeysAlone) {
  using Counts = std::map<std::string, std::int64_t>;
  EXPECT_EQ(resumed(Counts{{"a", 1}, {"b", 2}}, Counts{{"b", 9}, {"c", 3}}), (Counts{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(resumed(Counts{}, Counts{{"c", 3}}), Counts());
  using Values = std::unordered_map<std::int64_t, double>;
  EXPECT_EQ(resumed(Values{{7, 0.1}, {-1, 2}}, Values{{5, 5}}), (Values{{7, 0.1}, {-1, 2}}));
  using Flags = std::unordered_map<Phase, bool>;
  EXPECT_EQ(resumed(Flags{{Phase::main, true}}, Flags{}), (Flags{{Phase::main, true}}));
  using Nested = std::map<std::pair<int, int>, std::unordered_map<std::string, std::vector<float>>>;
  const Nested nested = {{{1, 2}, {{"x", {0.1F}}, {"y", {}}}}, {{0, 5}, {}}};
  EXPECT_EQ(resumed(nested, Nested{{{1, 2}, {{"z", {1}}}}}), nested);
  using Falling = std::map<int, std::string, std::greater<>>;
  EXPECT_EQ(resumed(Falling{{1, "a"}, {2, "b"}}, Falling{}).begin()->second, "b");
}

TEST(Value, AMapOfTensorsKeepsTheirTypeAndShape) {
  std::map<std::string, at::Tensor> from = {{"a", at::ones({2}, at::kHalf)}, {"none", at::Tensor()}};
  const auto to = resumed(from, {{"a", at::zeros({3})}});
  ASSERT_EQ(to.size(), 2u);
  EXPECT_TRUE(to.at("a").equal(from.at("a")));
  EXPECT_FALSE(to.at("none").defined());
}

// The order in which it iterates depends on its history, and ranks would differ.
TEST(Value, AnUnorderedMapIsSavedInTheOrderOfItsKeys) {
  std::unordered_map<int, int> rising, falling;
  for (int i = 0; i < 1000; ++i) rising[i] = 2 * i;
  for (int i = 2000; i-- > 0;) falling[i] = 2 * i;
  for (int i = 1000; i < 2000; ++i) falling.erase(i);
  TrainState first, second;
  first.value("it", rising);
  second.value("it", falling);
  ASSERT_NE(rising.begin()->first, falling.begin()->first) << "else this test tests nothing";
  EXPECT_EQ(digest(first), digest(second));
}

TEST(Value, EnginesAndDistributionsContinue) {
  engine_continues<std::mt19937>();
  engine_continues<std::mt19937_64>();
  engine_continues<std::minstd_rand>();
  engine_continues<std::ranlux24>();
  engine_continues<std::ranlux48>();
  engine_continues<std::knuth_b>();
  std::mt19937 engine(7), same(7);
  std::normal_distribution<double> normal(3, 2), other;
  normal(engine), normal.operator()(engine), normal(engine);  // keeps the second number of a pair
  same = engine;
  other = resumed(normal, other);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(normal(engine), other(same));
}

// Every save has the same tensors, whatever the engine's numbers are: the image is laid out once.
TEST(Value, AnEngineKeepsItsShape) {
  std::mt19937 engine(7);
  TrainState state;
  state.value("engine", engine);
  const auto specs = state.describe();
  for (int i = 0; i < 700; ++i) {
    engine();
    ASSERT_EQ(state.describe(), specs) << i;
  }
}

TEST(Value, DigestsTellWhichTensorsRanksHoldUnlike) {
  std::mt19937 dice(1), others(2);
  std::vector<double> row = {1, 2};
  at::Tensor large = at::zeros({1 << 19});
  TrainState one, other;
  for (TrainState* state : {&one, &other}) {
    state->value("dice", state == &one ? dice : others);
    state->value("row", row);
    state->value("large", large);
  }
  auto own = one.value_digests(), theirs = other.value_digests();
  ASSERT_EQ(own.size(), 2U) << "none of the large tensor, nor of what attributes hold";
  EXPECT_NE(own.at("dice/value"), theirs.at("dice/value"));
  EXPECT_EQ(own.at("row/value"), theirs.at("row/value"));
  others = dice;
  EXPECT_EQ(other.value_digests(), own);
}

TEST(Value, ATensorComesBackWithoutItsGraph) {
  const at::Tensor weight = at::ones({3}).set_requires_grad(true);
  const at::Tensor hidden = at::randn({2, 3}) * weight;
  const at::Tensor back = resumed(hidden, at::zeros({5, 1}));
  EXPECT_TRUE(back.equal(hidden)) << "of another shape";
  EXPECT_FALSE(back.requires_grad());
  EXPECT_TRUE(resumed(weight, at::Tensor()).requires_grad());
  EXPECT_FALSE(resumed(at::Tensor(), at::ones({2})).defined());
  const at::Tensor turned = at::randn({3, 4}, at::kDouble).t();
  EXPECT_TRUE(resumed(turned, at::Tensor()).equal(turned));
  EXPECT_EQ(resumed(turned, at::Tensor()).strides(), turned.strides()) << "kernels are chosen by them";
  const at::Tensor every_other = at::randn({8}).slice(0, 0, 8, 2);
  EXPECT_TRUE(resumed(every_other, at::Tensor()).equal(every_other));
  using States = std::tuple<at::Tensor, at::Tensor>;  // of an LSTM
  const auto both = resumed(States(hidden, hidden + 1), States());
  EXPECT_TRUE(std::get<1>(both).equal(hidden + 1));
}

TEST(Value, SeveralVariablesShareAName) {
  std::int64_t epoch = 3;
  double rate = 0.5;
  std::mt19937 engine(5);
  at::Tensor hidden = at::ones({2});
  TrainState before, after;
  before.value("loop", std::tie(epoch, rate, engine, hidden));
  const auto snapshot = stage(before);
  std::int64_t epoch2 = 0;
  double rate2 = 0;
  std::mt19937 engine2;
  at::Tensor hidden2;
  after.value("loop", std::tie(epoch2, rate2, engine2, hidden2));
  after.load(*snapshot, {});
  EXPECT_EQ(std::tie(epoch2, rate2, engine2), std::tie(epoch, rate, engine));
  EXPECT_TRUE(hidden2.equal(hidden));
}

TEST(Value, MembersOfAStruct) {
  struct Cart {
    double position = 0;
    std::vector<double> angles;
    int unsaved = 0;
  };
  Cart cart{1.5, {1, 2}, 7}, other;
  TrainState before, after;
  before.value("cart", cart, &Cart::position, &Cart::angles);
  after.value("cart", other, &Cart::position, &Cart::angles);
  after.load(*stage(before), {});
  EXPECT_EQ(other.position, 1.5);
  EXPECT_THAT(other.angles, ElementsAre(1, 2));
  EXPECT_EQ(other.unsaved, 0);
}

template <class T, class U>
std::string refusal(T from, U to) {
  TrainState before, after;
  before.value("it", from);
  after.value("it", to);
  const auto snapshot = stage(before);
  const std::string text = message_of<RefusedError>([&] { after.load(*snapshot, {}); });
  EXPECT_NE(message_of<RefusedError>([&] { after.load(*snapshot, {.overrides = {"it.type"}}); }), "")
      << "and not overridden";
  return text;
}

TEST(Value, AnotherTypeIsRefusedByName) {
  EXPECT_THAT(refusal(1, 1.0), AllOf(HasSubstr("it.type"), HasSubstr("int32"), HasSubstr("float64")));
  EXPECT_THAT(refusal(std::int64_t{1}, std::uint64_t{1}), HasSubstr("uint64"));
  EXPECT_THAT(refusal(std::array<int, 3>(), std::array<int, 4>()), HasSubstr("array<int32, 4>"));
  EXPECT_THAT(refusal(std::tuple(1, 2.0), std::tuple(1)), HasSubstr("tuple<int32, float64>"));
  EXPECT_THAT(refusal(std::vector<float>(), at::Tensor()), HasSubstr("vector<float32>"));
  EXPECT_THAT(refusal(std::map<int, bool>(), std::map<int, double>()), HasSubstr("map<int32, float64>"));
  EXPECT_THAT(refusal(std::minstd_rand(), std::minstd_rand0()),
              HasSubstr("std::linear_congruential_engine<"));
  EXPECT_THAT(refusal(Phase::main, std::uint8_t{1}), HasSubstr("enum uint8"));
}

// An engine of another kind has another number of words: nothing is half assigned.
TEST(Value, ARefusedResumeChangesNothing) {
  int count = 1;
  std::mt19937 engine(5);
  TrainState before, after;
  before.value("first", count);
  before.value("pair", std::tie(count, engine));
  const auto snapshot = stage(before);
  int first = 8, second = 9;
  std::minstd_rand other(3);
  const std::minstd_rand untouched(3);
  after.value("first", first);
  after.value("pair", std::tie(second, other));
  EXPECT_THAT(message_of<RefusedError>([&] { after.load(*snapshot, {}); }), HasSubstr("pair"));
  EXPECT_EQ(first, 8);
  EXPECT_EQ(second, 9);
  EXPECT_EQ(other, untouched);
}

TEST(Value, ItsNameIsCheckedAsOfAnyPart) {
  int count = 0;
  TrainState state;
  state.value("count", count);
  EXPECT_THROW(state.value("count", count), UsageError);
  EXPECT_THROW(state.value("rng", count), UsageError);
  EXPECT_THROW(state.value("a.b", count), UsageError);
}

}}  // namespace holdfast::test
