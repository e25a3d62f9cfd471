// A verifier that can also verify a copy while its bytes arrive from elsewhere.
//
// Errors: as verifier.h. Threads: one per copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

// A copy whose bytes arrive in order, such as a download.
class ArrivingCopy {
 public:
  virtual ~ArrivingCopy() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  // Call once, after the last byte. True if all bytes came, no more, and each is what the index says.
  virtual bool is_whole() = 0;
};

class CopyVerifier : public Verifier {
 public:
  // Keeps no bytes of the copy. Reads only the head of `file`: the digests there decide. nullptr if that head
  // is damaged.
  virtual std::unique_ptr<ArrivingCopy> expect_copy(const File& file) = 0;
};

}}  // namespace holdfast::v0_2
