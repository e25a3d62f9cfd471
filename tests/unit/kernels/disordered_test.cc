// The kernels of the fused batch norm, one by one: the same bits in whatever order blocks and threads run, nothing read
// or written behind the memory that they are given, and nothing left as it was. (batch_norm_test.cc compares what they
// compute with LibTorch's operators.)
#include "unit/kernels/disordered.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "holdfast/kernels/internal/batch_norm_kernels.h"

namespace holdfast::test { namespace {

using namespace kernels;

struct MatrixShape {
  Index rows;
  int channels;
  int multiprocessors;
};

// One pack; packs that fill no warp; a second group with one pack; one row more than full groups; one slab and many.
constexpr MatrixShape kShapes[] = {{2, 8, 8},     {13, 40, 1},   {257, 24, 8},
                                   {333, 264, 3}, {1025, 16, 8}, {97, 520, 2}};

template <class T>
class FusedKernels : public testing::Test {};
using Types = testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(FusedKernels, Types);

// What all four kernels of a norm read and write.
template <class T>
struct Memory {
  explicit Memory(const MatrixShape& shape)
      : tiling(tile(shape.rows, shape.channels, kPerPack<T>, shape.multiprocessors)),
        count(static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.channels)),
        channels(static_cast<std::size_t>(shape.channels)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.5F, 2.F);
    for (GuardedMemory<T>* values : {&x, &z, &dy, &dy2}) {
      for (T& value : values->values()) value = from_float<T>(normal(random));
    }
    for (GuardedMemory<float>* values : {&weight, &bias, &mean, &running_mean}) {
      for (float& value : values->values()) value = normal(random);
    }
    for (GuardedMemory<float>* values : {&deviation, &running_variance}) {
      for (float& value : values->values()) value = std::fabs(normal(random)) + 0.1F;
    }
    for (float& value : coefficients.values()) value = normal(random);
    for (unsigned char& bits : mask.values()) bits = static_cast<unsigned char>(random());
    for (unsigned& counter : counters.values()) counter = 0;
  }
  Channels of_channels() const { return {weight.data(), bias.data(), mean.data(), deviation.data()}; }
  Grid grid() const { return {.x = tiling.groups, .y = tiling.slabs}; }
  std::size_t packs() const { return count / kPerPack<T>; }
  std::size_t partials() const { return 3 * channels * static_cast<std::size_t>(tiling.slabs); }

  Tiling tiling;
  std::size_t count, channels;
  GuardedMemory<T> x{count}, z{count}, dy{count}, dy2{count}, out{count};
  GuardedMemory<float> weight{channels}, bias{channels}, mean{channels}, deviation{channels};
  GuardedMemory<float> running_mean{channels}, running_variance{channels};
  GuardedMemory<float> dweight{channels}, dbias{channels}, coefficients{3 * channels};
  GuardedMemory<float> partial{partials()};
  GuardedMemory<unsigned> counters{static_cast<std::size_t>(tiling.groups)};
  GuardedMemory<unsigned char> mask{packs()};
};

// What a kernel wrote, as bytes.
using Results = std::vector<std::vector<std::byte>>;
template <class T>
using Work = std::function<Results(Memory<T>&, std::uint32_t seed)>;

template <class T>
void expect_same_in_any_order(const Work<T>& work) {
  for (const MatrixShape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.channels));
    Memory<T> first(shape);
    const auto expected = work(first, 0);
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      Memory<T> memory(shape);
      const auto found = work(memory, seed);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], expected[i]) << "result " << i << ", order " << seed;
      }
      for (const unsigned counter : memory.counters.values()) EXPECT_EQ(counter, 0U);
    }
  }
}

TYPED_TEST(FusedKernels, MomentsAreTheSameInAnyOrder) {
  using T = TypeParam;
  expect_same_in_any_order<T>([](Memory<T>& on, std::uint32_t seed) {
    const ChannelMoments<T> kernel{.tiling = on.tiling,
                                   .sums = {on.partial.data(), on.counters.data()},
                                   .x = on.x.data(),
                                   .mean = on.mean.data(),
                                   .deviation = on.deviation.data(),
                                   .running_mean = on.running_mean.data(),
                                   .running_variance = on.running_variance.data(),
                                   .momentum = 0.1F,
                                   .epsilon = 1e-5F};
    launch_disordered(kernel, on.grid(), seed);
    return Results{on.mean.bytes(), on.deviation.bytes(), on.running_mean.bytes(),
                   on.running_variance.bytes()};
  });
}

template <class T, bool kAdd, bool kRelu, bool kMask>
void expect_apply() {
  SCOPED_TRACE(std::string(kAdd ? "add " : "") + (kRelu ? "relu " : "") + (kMask ? "mask" : ""));
  expect_same_in_any_order<T>([](Memory<T>& on, std::uint32_t seed) {
    const Apply<T, kAdd, kRelu, kMask> kernel{.tiling = on.tiling,
                                              .channels = on.of_channels(),
                                              .x = on.x.data(),
                                              .z = kAdd ? on.z.data() : nullptr,
                                              .y = on.out.data(),
                                              .mask = kMask ? on.mask.data() : nullptr};
    launch_disordered(kernel, on.grid(), seed);
    return Results{on.out.bytes(), on.mask.bytes()};
  });
}

TYPED_TEST(FusedKernels, ApplyIsTheSameInAnyOrder) {
  using T = TypeParam;
  expect_apply<T, false, false, false>();
  expect_apply<T, false, true, false>();
  expect_apply<T, true, false, false>();
  expect_apply<T, true, true, false>();
  expect_apply<T, true, true, true>();
}

template <class T, bool kSecond, bool kRelu, bool kMask>
void expect_output_gradients() {
  SCOPED_TRACE(std::string(kSecond ? "second " : "") + (kRelu ? "relu " : "") + (kMask ? "mask" : ""));
  expect_same_in_any_order<T>([](Memory<T>& on, std::uint32_t seed) {
    const OutputGradients<T, kSecond, kRelu, kMask> kernel{.tiling = on.tiling,
                                                           .sums = {on.partial.data(), on.counters.data()},
                                                           .channels = on.of_channels(),
                                                           .dy = on.dy.data(),
                                                           .dy2 = kSecond ? on.dy2.data() : nullptr,
                                                           .x = on.x.data(),
                                                           .mask = kMask ? on.mask.data() : nullptr,
                                                           .d = kSecond || kMask ? on.out.data() : nullptr,
                                                           .weight_gradient = on.dweight.data(),
                                                           .bias_gradient = on.dbias.data(),
                                                           .coefficients = on.coefficients.data(),
                                                           .own_statistics = true};
    launch_disordered(kernel, on.grid(), seed);
    return Results{on.out.bytes(), on.dweight.bytes(), on.dbias.bytes(), on.coefficients.bytes()};
  });
}

TYPED_TEST(FusedKernels, OutputGradientsAreTheSameInAnyOrder) {
  using T = TypeParam;
  expect_output_gradients<T, false, false, false>();
  expect_output_gradients<T, false, true, false>();
  expect_output_gradients<T, false, true, true>();
  expect_output_gradients<T, true, false, false>();
  expect_output_gradients<T, true, true, false>();
  expect_output_gradients<T, true, true, true>();
}

template <class T, bool kRelu>
void expect_input_gradient() {
  expect_same_in_any_order<T>([](Memory<T>& on, std::uint32_t seed) {
    const InputGradient<T, kRelu> kernel{.tiling = on.tiling,
                                         .channels = on.of_channels(),
                                         .d = on.dy.data(),
                                         .x = on.x.data(),
                                         .coefficients = on.coefficients.data(),
                                         .dx = on.out.data()};
    launch_disordered(kernel, on.grid(), seed);
    return Results{on.out.bytes()};
  });
}

TYPED_TEST(FusedKernels, InputGradientIsTheSameInAnyOrder) {
  expect_input_gradient<TypeParam, false>();
  expect_input_gradient<TypeParam, true>();
}

// The emulation itself: a kernel that lacks a barrier, or counts on zeros, is found.
struct WithoutBarrier {
  static constexpr int kThreads = 64, kSteps = 1;
  struct Shared {
    int value[kThreads];
  };
  int* out;
  template <int kStep>
  void step(const Place& at, Shared& shared) const {
    shared.value[at.thread] = at.thread;
    out[at.thread] = shared.value[at.thread / 2];  // of a thread before this one: in order, it is there
  }
};
struct CountsOnZeros {
  static constexpr int kThreads = 64, kSteps = 1;
  struct Shared {
    int sum;
  };
  int* out;
  template <int kStep>
  void step(const Place& at, Shared& shared) const {
    out[at.block_x] = ++shared.sum;
  }
};

template <class Kernel>
bool is_found() {
  std::array<int, 64> ordered{}, disordered{};
  launch_disordered(Kernel{ordered.data()}, {}, 0);
  launch_disordered(Kernel{disordered.data()}, {}, 1);
  return ordered != disordered;
}

TEST(DisorderedLaunch, FindsAMissingBarrierAndSharedMemoryThatCountsAsZero) {
  EXPECT_TRUE(is_found<WithoutBarrier>());
  EXPECT_TRUE(is_found<CountsOnZeros>());
}

TEST(GuardedMemoryDeathTest, EndsWhereNoAccessIsAllowed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const GuardedMemory<int> memory(5);
  memory.values()[4] = 1;
  EXPECT_DEATH(memory.data()[5] = 1, "");
}

}}  // namespace holdfast::test
