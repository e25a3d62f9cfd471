// A status line that shows how far a long read or write is, redrawn while it lives; on terminals alone.
//
// Threads: made and destroyed on one; done() may be counted up by any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

class Progress {
 public:
  // `doing`: "verifying step-…", printable.
  Progress(std::string doing, std::uint64_t bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::atomic<std::uint64_t>* done() { return &done_; }
  std::string rate() const;  // "1.20 GB/s", from the beginning until now

 private:
  void draw();

  const std::string doing_;
  const std::uint64_t bytes_;
  const SteadyTime start_;
  std::atomic<std::uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace holdfast::inline v1
