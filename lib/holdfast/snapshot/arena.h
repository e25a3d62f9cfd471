// One page-aligned piece of host memory that holds the image of a checkpoint file. Advised for huge pages,
// zero-filled when made, reused from save to save so that its pages are faulted in once.
//
// Ensures: data() is 4096-aligned (2 MiB where the arena is larger than that); capacity() is a multiple of
// 4096, so O_DIRECT may write past the image's end up to it; bytes beyond size() are zero.
// Errors: RefusedError naming the size when memory is not to be had (never std::bad_alloc).
// Threads: none of its own; whoever holds it writes disjoint ranges as they like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace holdfast::inline v1 {

class Arena {
 public:
  explicit Arena(std::uint64_t size);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The image and its zero padding up to a multiple of 4096.
  std::span<const std::byte> padded() const { return {data_, capacity_}; }
  std::uint64_t size() const { return size_; }
  std::uint64_t capacity() const { return capacity_; }

  // Goes with this memory, just before it does: a device's hold on it. Replaces an earlier one; nullptr says
  // that nothing could be done.
  void attach(std::shared_ptr<void> companion) {
    companion_ = std::move(companion);
    attached_ = true;
  }
  bool attached() const { return attached_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t capacity_ = 0;  // size_ rounded up to 4096
  std::uint64_t mapped_ = 0;    // what munmap gets
  std::shared_ptr<void> companion_;
  bool attached_ = false;
};

}  // namespace holdfast::inline v1
