// A File that is only read: what a command puts between a checkpoint and its reader derives from it.
//
// Errors: Error from every call that writes; such a call is a defect. Threads: as File.
#pragma once

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

class ReadOnlyFile : public File {
 public:
  void write_at(std::span<const std::byte> /*data*/, std::uint64_t /*offset*/) final { refuse(); }
  void reserve(std::uint64_t /*length*/) final { refuse(); }
  void truncate(std::uint64_t /*length*/) final { refuse(); }
  void sync() final { refuse(); }
  void close() final {}

 private:
  [[noreturn]] static void refuse() { throw Error("a command of holdfast only reads this file"); }
};

}}  // namespace holdfast::v0_2
