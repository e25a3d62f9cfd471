// Logs what a program waits for if one operation takes longer than 2 s, and again every 10 s. Without it a
// mount whose server is gone hangs silently.
//
// Threads: one calls doing(); the watch has its own.
#pragma once

#include <string>
#include <thread>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StallWatch {
 public:
  explicit StallWatch(Duration patience = std::chrono::seconds(2));
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // A new operation begins: "fsync of /mnt/ckpt".
  void doing(std::string what);

 private:
  void watch();

  const Duration patience_;
  Mutex mutex_;
  CondVar wake_;
  std::string what_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime since_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime say_at_ HOLDFAST_GUARDED_BY(mutex_);
  bool ended_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}}}  // namespace holdfast::v0_2::internal
