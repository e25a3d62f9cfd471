// A training state whose tensors have names that cannot be stored: said when the run is planned, before
// anything is claimed, and not at the first save.
#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class NamesSource : public SnapshotSource {
 public:
  explicit NamesSource(std::vector<TensorSpec> more) : more_(std::move(more)) {}

  std::vector<TensorSpec> describe() override {
    std::vector<TensorSpec> specs = plain_.describe();
    specs.insert(specs.end(), more_.begin(), more_.end());
    return specs;
  }
  Attributes attributes() override { return plain_.attributes(); }
  std::unique_ptr<LateCopy> copy(const ImageLayout&, std::span<std::byte>, Part) override {
    ++copies;
    return nullptr;
  }
  Position advance(const StepReport& report) override { return plain_.advance(report); }
  Position position() const override { return plain_.position(); }
  void learn(const StepNews&) override {}
  void check(std::span<const TensorSpec>, const Attributes&, const Overrides&) override {}
  void load(const Snapshot&, const LoadOptions&) override {}

  int copies = 0;

 private:
  MemorySource plain_;
  std::vector<TensorSpec> more_;
};

// What resume() says, and that it left nothing behind.
std::string refusal(std::vector<TensorSpec> more) {
  Volume volume;
  NamesSource source(std::move(more));
  Checkpointer checkpointer(source, volume.options());
  std::string said = "accepted";
  try {
    checkpointer.resume();
  } catch (const UsageError& error) {
    said = error.what();
  }
  if (said != "accepted") {
    EXPECT_THAT(volume.disk.names("/vol"), IsEmpty()) << said;
  }
  EXPECT_EQ(source.copies, 0);
  return said;
}

std::string refusal_of_name(std::string name) { return refusal({{std::move(name), DType::uint8, {1}}}); }

TEST(StateNames, OrdinaryOnesAreAccepted) {
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal_of_name("model/layer1.0.größe"), "accepted");
}

TEST(StateNames, WhatIsNoKeyIsRefusedBeforeTheClaim) {
  for (const char* const name :
       {"model/", "model//w", "model/../w", "model/..", "../../etc/passwd", "/model/w", "w"}) {
    EXPECT_THAT(refusal_of_name(name), HasSubstr("cannot be stored: tensor '" + std::string(name) + "'"));
  }
  EXPECT_THAT(refusal_of_name(std::string("model/a\0b", 9)), HasSubstr("NUL"));
  EXPECT_THAT(refusal_of_name("model/\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of_name("model/" + std::string(10'000, 'n')), HasSubstr("10006 bytes, at most 1024"));
  EXPECT_THAT(refusal_of_name("meta/json"), HasSubstr("the file format's own"));
}

TEST(StateNames, TwoOfOneNameAndATensorThatIsAGroupAreRefused) {
  const TensorSpec one{"model/a", DType::uint8, {1}};
  EXPECT_THAT(refusal({one, one}), HasSubstr("two tensors of this name"));
  EXPECT_THAT(refusal({one, {"model/a/b", DType::uint8, {1}}}), HasSubstr("it cannot be a group as well"));
}

TEST(StateNames, SizesThatCannotBeAreRefused) {
  EXPECT_THAT(refusal({{"model/a", DType::uint8, std::vector<std::int64_t>(33, 1)}}),
              HasSubstr("32 dimensions"));
  EXPECT_THAT(refusal({{"model/a", DType::float32, {1ll << 40, 1ll << 40}}}), HasSubstr("too large"));
}

}}  // namespace holdfast::test
