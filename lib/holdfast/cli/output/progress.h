// A status line with the progress of a long read or write. It is shown only on terminals.
//
// Errors: none. Threads: made and destroyed on one; any thread may add to *done().
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 {

class Progress {
 public:
  // `doing`: printable text such as "verifying step-…".
  Progress(std::string doing, std::uint64_t bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::atomic<std::uint64_t>* done() { return &done_; }
  std::string rate() const;  // "1.20 GB/s", since the beginning

 private:
  void draw();
  std::string text() const;

  const std::string doing_;
  const std::uint64_t bytes_;
  const SteadyTime start_;
  std::atomic<std::uint64_t> done_{0};
  Mutex mutex_;
  CondVar wake_;
  bool ended_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}}  // namespace holdfast::v0_2
