// A File that is only read: what stands between a checkpoint and its reader, or holds one in memory, derives
// from it.
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
  [[noreturn]] static void refuse() { throw Error("this file can only be read"); }
};

}}  // namespace holdfast::v0_2
