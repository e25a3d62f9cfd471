// Processes that live in virtual time: each is a thread, and only one of them runs, until it sleeps. A seed
// therefore decides every order of their operations, and hours take milliseconds.
//
//   VirtualTime time;
//   time.start(Duration(0), [&] { …; time.sleep(5s); … });
//   const bool all_ended = time.run(2h);
//
// Errors: sleep() throws Killed once the limit of run() has passed. Threads: run() by one thread; the others
// by processes, or before run().
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "machine.h"

namespace holdfast::test {

class VirtualTime {
 public:
  ~VirtualTime() {
    for (const auto& process : processes_) process->thread.join();
  }

  Duration now() const { return now_; }
  // Begins a process after that time. It must let no exception out.
  void start(Duration after, std::function<void()> life) {
    processes_.push_back(std::make_unique<Process>());
    Process* const process = processes_.back().get();
    process->thread = std::thread([this, process, life = std::move(life)] {
      process->turn.await();
      current() = process;
      life();
      idle_.give();
    });
    plan(after, process);
  }
  void sleep(Duration duration) {
    Process* const self = current();
    plan(duration, self);
    idle_.give();
    self->turn.await();
    if (over_) throw Killed();
  }
  // Until all processes have ended. False: some still lived after that time, and were ended.
  bool run(Duration limit) {
    while (!plans_.empty()) {
      const Plan next = plans_.top();
      plans_.pop();
      over_ = over_ || next.at > limit;
      now_ = next.at;
      next.process->turn.give();
      idle_.await();
    }
    return !over_;
  }

 private:
  class Turn {
   public:
    void give() {
      const std::lock_guard lock(mutex_);
      given_ = true;
      changed_.notify_one();
    }
    void await() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return given_; });
      given_ = false;
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool given_ = false;
  };
  struct Process {
    Turn turn;
    std::thread thread;
  };
  struct Plan {
    Duration at;
    int order;  // the first planned of one time comes first
    Process* process;
    bool operator<(const Plan& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  static Process*& current() {
    static thread_local Process* process = nullptr;
    return process;
  }
  void plan(Duration after, Process* process) { plans_.push({now_ + after, planned_++, process}); }

  std::priority_queue<Plan> plans_;
  std::vector<std::unique_ptr<Process>> processes_;
  Turn idle_;
  Duration now_{};
  int planned_ = 0;
  bool over_ = false;
};

}  // namespace holdfast::test
