// The ceiling: writes and reads as many bytes as a checkpoint has, as fast as the disk allows. Write: open,
// fallocate, 8 MiB O_DIRECT blocks by several threads, fsync, rename, fsync of the directory. Read: 8 MiB
// O_DIRECT blocks by several threads into allocated memory.
//
// If the file system refuses O_DIRECT, both go through the page cache and direct() is false. Errors: IoError.
// Threads: one thread; starts its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/arena.h"

namespace holdfast::bench {

class Ceiling {
 public:
  Ceiling(std::filesystem::path folder, std::uint64_t bytes);
  ~Ceiling();
  Ceiling(const Ceiling&) = delete;
  Ceiling& operator=(const Ceiling&) = delete;

  std::span<std::byte> buffer() { return memory_->bytes(); }
  bool direct() const { return direct_; }
  int write_threads() const { return write_threads_; }
  int read_threads() const { return read_threads_; }
  // Tries 1, 2 and 4 threads, each `trials` times in turn, and keeps the number with the smallest median.
  void choose_threads(int trials);

  double write() { return write(write_threads_); }  // seconds; first removes the file
  // One more file beside the last ones, at once after what came before. Then removes the oldest but `kept`.
  double write_in_row(int kept);
  double read() { return read(read_threads_, buffer()); }  // reads the newest file
  // Reads into newly mapped memory, as a new process must.
  double read_into_new_memory();

 private:
  double write(int threads);
  double write_as(const std::string& name, int threads);
  double read(int threads, std::span<std::byte> to);

  std::filesystem::path folder_;
  std::unique_ptr<Arena> memory_;
  bool direct_ = true;
  int write_threads_ = 2;
  int read_threads_ = 2;
  int in_row_ = 0;
};

}  // namespace holdfast::bench
