// The XXH3-128 of bytes that come piece by piece: the same digest as digest_of() of all of them.
//
// Errors: none. Threads: one per object.
#pragma once

#include <cstddef>
#include <span>

#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast { inline namespace v0_2 {

class DigestStream {
 public:
  DigestStream();
  void append(std::span<const std::byte> bytes);
  // The digest of what came since the last call, or since the beginning.
  Digest take();

 private:
  internal::HashState hash_;
};

}}  // namespace holdfast::v0_2
