#include "holdfast/snapshot/samples.h"

#include <atomic>
#include <bit>
#include <cstring>

namespace holdfast { inline namespace v0_2 {
namespace {

// Adjacent cache lines: reaching a place costs most (a page look-up), and reading on there costs little.
constexpr std::size_t kLine = 64;
constexpr std::size_t kPlace = 4 * kLine;  // an update of a whole tensor changes any place
constexpr std::size_t kSmallPlace = 2 * kLine;
constexpr std::size_t kSmall = 16 << 10;  // bytes; a smaller piece gets a small place
constexpr std::size_t kExpected = 256;    // pieces of a usual model; avoids reallocation

std::uint64_t mixed(std::uint64_t state) {  // splitmix64
  std::uint64_t z = state + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t new_seed() {
  static std::atomic<std::uint64_t> made{0};
  // Every object draws other places, so a change that one misses can be seen by the next.
  return mixed(made.fetch_add(1, std::memory_order_relaxed));
}

// The mixing step of wyhash: every bit of both words influences the result.
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide all = Wide{a} * b;
  return static_cast<std::uint64_t>(all) ^ static_cast<std::uint64_t>(all >> 64);
}

constexpr std::uint64_t kKey[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                  0x589965cc75374cc3};

// The four products are independent, so the processor computes them in parallel.
std::uint64_t hash_of_line(const std::byte* at) {
  std::uint64_t words[kLine / sizeof(std::uint64_t)];
  std::memcpy(words, at, kLine);
  return product(words[0] ^ kKey[0], words[1] ^ kKey[1]) + product(words[2] ^ kKey[1], words[3] ^ kKey[2]) +
         product(words[4] ^ kKey[2], words[5] ^ kKey[3]) + product(words[6] ^ kKey[3], words[7] ^ kKey[0]);
}

std::uint64_t hash_of(const std::byte* at, std::size_t bytes) {
  std::uint64_t hash = bytes;
  for (; bytes >= kLine; at += kLine, bytes -= kLine) hash = std::rotl(hash, 29) + hash_of_line(at);
  if (bytes == 0) return hash;
  std::byte rest[kLine] = {};
  std::memcpy(rest, at, bytes);
  return std::rotl(hash, 29) + hash_of_line(rest);
}

}  // namespace

Samples::Samples() : draw_(new_seed()) {}

void Samples::add(std::size_t owner, std::span<const std::byte> memory) {
  if (memory.empty()) return;
  if (places_.empty()) places_.reserve(kExpected);
  const std::size_t wanted = memory.size() > kSmall ? kPlace : kSmallPlace;
  // Too small to choose within: take all of it.
  if (memory.size() < wanted + kLine) {
    return places_.push_back(
        {memory.data(), static_cast<std::uint32_t>(memory.size()), static_cast<std::uint32_t>(owner), 0});
  }
  // From the next cache line on, so that a place never touches one line more than it must.
  const std::size_t skew = -reinterpret_cast<std::uintptr_t>(memory.data()) % kLine;
  const std::uint64_t lines = (memory.size() - skew - wanted) / kLine + 1;
  draw_ = mixed(draw_);
  // A multiplication instead of a division: the high half of the product is evenly distributed.
  const std::size_t drawn = ((draw_ >> 32) * lines >> 32) * kLine;
  places_.push_back({memory.data() + skew + drawn, static_cast<std::uint32_t>(wanted),
                     static_cast<std::uint32_t>(owner), 0});
}

// Loads every place without depending on the results, so the processor fetches many places at once.
void Samples::fetch(std::size_t from) const {
  std::byte all{};
  for (std::size_t i = from; i < places_.size(); ++i) {
    const Place& place = places_[i];
    for (std::size_t line = 0; line < place.bytes; line += kLine) all |= place.at[line];
  }
  asm volatile("" : : "r"(static_cast<int>(all)));  // keeps the compiler from removing the loads
}

void Samples::keep() {
  fetch(kept_);
  for (; kept_ < places_.size(); ++kept_) {
    Place& place = places_[kept_];
    place.hash = hash_of(place.at, place.bytes);
  }
}

std::vector<std::size_t> Samples::changed() const {
  fetch(0);
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < kept_; ++i) {
    const Place& place = places_[i];
    if (hash_of(place.at, place.bytes) == place.hash) continue;
    // Places of one owner are adjacent, so the last entry tells whether it is listed already.
    if (owners.empty() || owners.back() != place.owner) owners.push_back(place.owner);
  }
  return owners;
}

}}  // namespace holdfast::v0_2
