// A thread that works in rounds, and waits between them. A disk that hangs must not hold up the end of a run:
// stop() then leaves the thread behind, and it asks the run nothing more.
//
// Errors: start() throws std::system_error or std::bad_alloc; stop() none. Threads: start() and stop() by the
// owner's.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class DiskThread {
 private:
  struct Shared;

 public:
  class Round {
   public:
    // stop() was called: no round comes after this one.
    bool last() const { return last_; }
    // Calls `question`, which may use what the owner uses, unless the thread was left behind.
    void ask(const std::function<void()>& question);
    // The part of the round that may hang. It must use only what outlives the owner.
    void in_disk(const std::function<void()>& work);

   private:
    friend class DiskThread;
    Round(Shared& shared, bool last) : shared_(shared), last_(last) {}
    Shared& shared_;
    const bool last_;
  };
  // Returns the wait before the next round. Throws nothing.
  using Work = std::function<Duration(Round&)>;

  DiskThread() = default;
  ~DiskThread() { stop(kPatience); }
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Call at most once. What `work` holds lives as long as the thread.
  void start(Duration first, Work work);
  // One last round, then none. Only a disk can hang: a thread that merely waits for a processor is waited
  // for.
  void stop(Duration patience) noexcept;
  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  static void run(Shared& shared, Duration first, const Work& work) noexcept;

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}}}  // namespace holdfast::v0_2::internal
