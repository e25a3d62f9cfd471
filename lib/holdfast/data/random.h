// Counter-based random numbers: each draw is a pure function of its purpose. So nothing must be saved to
// repeat it, and workers, batch size and the order of work cannot change it.
//
// Philox4x32-10 (Salmon et al. 2011) with 32-bit integers only: equal on every CPU and GPU. Threads: pure
// functions; a SampleRandom belongs to one thread.
#pragma once

#include <array>
#include <cstdint>

namespace holdfast { inline namespace v0_2 {

using Random4 = std::array<std::uint32_t, 4>;

// The high half of a 32 x 32 bit product. mul_hi(random, n) maps 32 random bits to [0, n).
constexpr std::uint32_t mul_hi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}

// 128 random bits for a 64-bit key and a 128-bit counter.
constexpr Random4 philox(std::uint64_t key, Random4 counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    counter = {mul_hi(0xCD9E8D57u, counter[2]) ^ counter[1] ^ k0, 0xCD9E8D57u * counter[2],
               mul_hi(0xD2511F53u, counter[0]) ^ counter[3] ^ k1, 0xD2511F53u * counter[0]};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Purpose of a draw. The values are part of every recorded run: never change them.
enum class RandomPurpose : std::uint32_t { augment = 1, shuffle = 2, topic = 3 };

// 128 bits number `block` of the stream of (seed, epoch, sample). `sample` is the index in the data set, not
// the position in the epoch. Requires 0 <= epoch < 2^32 and 0 <= sample < 2^56.
constexpr Random4 sample_bits(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                              std::uint32_t block = 0) {
  const auto wide = static_cast<std::uint64_t>(sample);
  return philox(
      seed, {static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(epoch),
             static_cast<std::uint32_t>(RandomPurpose::augment) | static_cast<std::uint32_t>(wide >> 32) << 8,
             block});
}

// This stream as a generator, for your own augmentation: `Sample get(index, SampleRandom& random)`. It is
// a C++ uniform random bit generator. Prefer the members below, because the distributions of <random> differ
// between standard libraries.
class SampleRandom {
 public:
  using result_type = std::uint32_t;

  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample)
      : seed_(seed), epoch_(epoch), sample_(sample) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xFFFFFFFFu; }
  result_type operator()() {
    if (used_ == 4) {
      bits_ = sample_bits(seed_, epoch_, sample_, block_++);
      used_ = 0;
    }
    return bits_[used_++];
  }

  // Uniform in [0, n). Requires n > 0.
  std::uint32_t below(std::uint32_t n) { return mul_hi((*this)(), n); }
  // Uniform in [0, 1), a multiple of 2^-24.
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }

 private:
  std::uint64_t seed_;
  std::int64_t epoch_;
  std::int64_t sample_;
  Random4 bits_{};
  std::uint32_t block_ = 0;
  unsigned used_ = 4;
};

}}  // namespace holdfast::v0_2
