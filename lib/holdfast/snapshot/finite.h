// Whether the numbers of a state are finite, found in the pass that hashes them. A float is finite unless it
// is a NaN, or an infinity where none belongs. Integers and bools are always finite.
//
// Cost: a tenth of the hash, because each 4 KiB is checked and then hashed in the nearest cache. A separate
// pass over memory would cost as much as the hash.
// Errors: none. Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 {

// An infinity in a trained parameter or an optimizer slot means that training has diverged. Elsewhere it may
// be correct: a causal mask holds -inf, an observer starts with min = inf.
enum class Infinity : bool { not_finite, allowed };

struct Inspected {
  Digest digest;  // as digest_of()
  bool finite = true;
};

// Requires that `bytes` begins with a whole element. After the first number that is not finite the rest is
// only hashed.
HOLDFAST_EXPORT Inspected inspect_bytes(std::span<const std::byte> bytes, DType dtype,
                                        Infinity infinity = Infinity::not_finite);

}}  // namespace holdfast::v0_2
