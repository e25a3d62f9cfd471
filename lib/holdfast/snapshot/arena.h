// Page-aligned host memory for the image of a checkpoint file. Zero-filled when made, advised for huge pages,
// and reused from save to save, so that page faults happen once.
//
// Ensures: the memory is 4096-aligned, and 2 MiB-aligned if the arena is larger than that. capacity() is a
// multiple of 4096, so O_DIRECT may write up to it; bytes after size() are zero.
// Errors: NoImageMemory with the size if there is no memory (never std::bad_alloc).
// Threads: no locks; several threads may write disjoint ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// A trainer cannot go on without its image. A program that can wait tries again: another process may use the
// memory only for a moment.
class HOLDFAST_EXPORT NoImageMemory : public RefusedError {
 public:
  using RefusedError::RefusedError;
};
inline bool is_about_memory(const Error& error) {
  return dynamic_cast<const NoImageMemory*>(&error) != nullptr;
}

class HOLDFAST_EXPORT Arena {
 public:
  explicit Arena(std::uint64_t size);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The image with its zero padding up to a multiple of 4096.
  std::span<const std::byte> padded() const { return {data_, capacity_}; }
  std::uint64_t size() const { return size_; }
  std::uint64_t capacity() const { return capacity_; }

  // `companion` is destroyed right before the memory, such as a device's page-locking of it. Replaces an
  // earlier one. nullptr records that the device could do nothing.
  void attach(std::shared_ptr<void> companion) {
    companion_ = std::move(companion);
    attached_ = true;
  }
  bool attached() const { return attached_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t capacity_ = 0;  // size_ rounded up to 4096
  std::uint64_t mapped_ = 0;    // length for munmap
  std::shared_ptr<void> companion_;
  bool attached_ = false;
};

}}  // namespace holdfast::v0_2
