// A disk that finishes the writes of checkpoints only when it is told to.
#pragma once

#include <condition_variable>
#include <mutex>

#include "rig.h"

namespace holdfast::test {

class SlowDisk {
 public:
  explicit SlowDisk(Volume& volume) {
    volume.faults.set_hook([state = state_](const Operation& operation) {
      if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) state->pass();
    });
  }
  ~SlowDisk() { finish(1'000'000); }
  SlowDisk(const SlowDisk&) = delete;
  SlowDisk& operator=(const SlowDisk&) = delete;

  // Lets that many more writes end.
  void finish(int writes = 1) {
    const std::lock_guard lock(state_->mutex);
    state_->allowed += writes;
    state_->changed.notify_all();
  }
  // Until that many writes have begun in all.
  void await(int writes) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->begun >= writes; });
  }
  int begun() {
    const std::lock_guard lock(state_->mutex);
    return state_->begun;
  }

 private:
  struct State {
    void pass() {
      std::unique_lock lock(mutex);
      const int number = ++begun;
      changed.notify_all();
      changed.wait(lock, [&] { return number <= allowed; });
    }
    std::mutex mutex;
    std::condition_variable changed;
    int begun = 0;
    int allowed = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace holdfast::test
