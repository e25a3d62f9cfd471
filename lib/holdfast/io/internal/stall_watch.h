// Says what a program waits for when one operation takes longer than 2 s, and again every 10 s: a mount whose
// server is away hangs without a word.
//
// Threads: doing() on one; the watch has its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1::internal {

class StallWatch {
 public:
  explicit StallWatch(Duration patience = std::chrono::seconds(2));
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // The operation that begins now: "fsync of /mnt/ckpt".
  void doing(std::string what);

 private:
  void watch();

  const Duration patience_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string what_;
  SteadyTime since_;
  SteadyTime say_at_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace holdfast::inline v1::internal
