// Hashes a few hundred bytes of each of many pieces of memory (128 of a piece below 16 KiB), to see later
// whether they have changed. It detects a change of a whole piece, such as an optimizer's update. It may miss
// a change of a few elements of a large piece; places differ between objects, so another object may see it.
//
// Cost: mostly one cache miss and one page a piece, at keep() and at changed(); bench/late_samples.cc
// measures it. Requires readable memory during this object's life, and fewer than 2^32 pieces.
// Errors: std::bad_alloc. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT Samples {
 public:
  Samples();
  // Chooses places in that memory, or all of it if it is small. changed() returns `owner`.
  void add(std::size_t owner, std::span<const std::byte> memory);
  // Hashes the places that were added since the last call.
  void keep();
  // Owners whose memory has changed, each once, in the order of add().
  std::vector<std::size_t> changed() const;

 private:
  struct Place {
    const std::byte* at;
    std::uint32_t bytes;
    std::uint32_t owner;
    std::uint64_t hash;  // set by keep()
  };
  void fetch(std::size_t from) const;

  std::vector<Place> places_;
  std::size_t kept_ = 0;  // of places_
  std::uint64_t draw_;
};

}}  // namespace holdfast::v0_2
