// Whether numbers are worth going back to, found in the pass that hashes them: a float is finite unless it is
// a NaN or an infinity. Integers and bools are always finite.
//
// The check costs about a tenth of the hash: 4 KiB are looked at, then hashed while they are in the nearest
// cache. A pass of its own over the memory costs as much as the hash.
//
// Threads: free functions, pure.
#pragma once

#include <cstddef>
#include <span>

#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast::inline v1 {

struct Inspected {
  Digest digest;  // as digest_of()
  bool finite = true;
};

// Requires: `bytes` begins with a whole element of that type. What is behind the first number that is not
// finite is hashed, and looked at no more.
Inspected inspect_bytes(std::span<const std::byte> bytes, DType dtype);

}  // namespace holdfast::inline v1
