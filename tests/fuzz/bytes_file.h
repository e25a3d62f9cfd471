// Bytes in memory as a File to read, for what reads files.
//
// Requires: the bytes outlive it. Errors: writing is an Error. Threads: any.
#pragma once

#include <algorithm>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"

namespace holdfast::test {

class BytesFile final : public File {
 public:
  explicit BytesFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(buffer.size(), bytes_.size() - offset);
    if (count > 0) std::memcpy(buffer.data(), bytes_.data() + offset, count);
    return count;
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return read_at(buffer, offset);
  }
  void write_at(std::span<const std::byte>, std::uint64_t) override { refuse(); }
  void reserve(std::uint64_t) override { refuse(); }
  void truncate(std::uint64_t) override { refuse(); }
  void sync() override { refuse(); }
  void close() override {}

 private:
  [[noreturn]] static void refuse() { throw Error("these bytes can only be read"); }

  std::span<const std::byte> bytes_;
};

}  // namespace holdfast::test
