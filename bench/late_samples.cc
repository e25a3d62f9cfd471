// What late staging pays to see that nothing has changed: samples of ResNet-50's 161 tensors, kept when a
// late copy is opened and compared when it is closed, each with cold caches.
//
//   build/release/bin/bench_late_samples [REPETITIONS]
//
// Needs 200 MB of memory. Prints medians, and ends with 1 when the goal is missed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "holdfast/snapshot/samples.h"
#include "shared/median.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGoal = 20;  // µs a save

// Elements of the parameters, in their order.
std::vector<std::size_t> resnet50() {
  std::vector<std::size_t> sizes{64 * 3 * 49, 64, 64};
  const auto convolution = [&](std::size_t in, std::size_t out, std::size_t window) {
    sizes.insert(sizes.end(), {in * out * window, out, out});
  };
  constexpr std::size_t kBlocks[] = {3, 4, 6, 3};
  std::size_t in = 64;
  std::size_t width = 64;
  for (const std::size_t blocks : kBlocks) {
    for (std::size_t block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 9);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  sizes.insert(sizes.end(), {2048 * 1000, 1000});
  return sizes;
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Evicts the samples from the caches, as a training step does.
void chill(std::vector<char>& other) {
  static char round = 0;
  std::memset(other.data(), ++round, other.size());
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 99;
  if (repetitions < 1) {
    std::fprintf(stderr, "bench_late_samples [REPETITIONS]: at least one\n");
    return 64;
  }
  std::vector<std::vector<float>> tensors;
  for (const std::size_t size : resnet50()) tensors.emplace_back(size, 1.0F);
  std::vector<char> other(100 << 20);

  std::vector<double> keep, compare, both;
  for (int i = 0; i < repetitions; ++i) {
    chill(other);
    auto began = Clock::now();
    holdfast::Samples samples;
    for (std::size_t at = 0; at < tensors.size(); ++at)
      samples.add(at, std::as_bytes(std::span(tensors[at])));
    samples.keep();
    keep.push_back(microseconds_since(began));
    chill(other);
    began = Clock::now();
    const bool same = samples.changed().empty();
    compare.push_back(microseconds_since(began));
    both.push_back(keep.back() + compare.back());
    if (!same) {
      std::fprintf(stderr, "bench_late_samples: nothing changed, and a change was seen\n");
      return 70;
    }
  }
  using holdfast::bench::median;
  const double total = median(both);
  std::printf("%zu tensors, cold caches, %d repetitions: keep %.1f µs, compare %.1f µs\n", tensors.size(),
              repetitions, median(keep), median(compare));
  std::printf("a save pays %.1f µs (goal: below %.0f µs)%s\n", total, kGoal, total < kGoal ? "" : "  MISSED");
  return total < kGoal ? 0 : 1;
}
