// Signs of life: who of the ranks has fallen silent, whatever its threads are busy with.
//
// A thread in each process adds one to its own key of the store twice a second. Rank 0's reads all of them in
// one message and writes down who has not moved for how many of its looks; everybody reads that, and counts
// for how long that text has not moved. So a rank costs four short messages a second, however many there are,
// and who has been silent for `looks` looks is lost for all within about two seconds of each other. Looks are
// counted, not seconds: a process that was stopped and goes on has missed looks of its own, and accuses
// nobody for them.
//
// A rank that evaluates, reads or compiles has its thread all the same. One that is stopped (a debugger,
// SIGSTOP) has not.
//
// Keys, below the prefix: beat/<r> (a count), pulse (rank 0: "<count> <rank>:<looks> …").
// Errors: none; without the memory for a thread, std::system_error. Threads: any, but for end(). Costs two
// threads and a connection to the store, which must be nobody else's: c10d's clients serve one call at a
// time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// Raised once, never lowered.
struct Alarm {
  std::atomic<bool> rank{false};   // one is lost
  std::atomic<bool> store{false};  // rank 0 is, or the store itself
};

struct PulseOptions {
  Duration period = std::chrono::milliseconds(500);
  int looks = 12;  // without a sign of life: lost
};

class Pulse {
 public:
  // `on_loss` is called once, from a thread of this object, when ranks are lost.
  Pulse(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int world_size,
        PulseOptions options = {}, std::function<void()> on_loss = {});
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // No more signs from here, and no more verdicts. A thread that the store does not answer is left behind.
  void end() noexcept;

  // Ranks that are lost, by the first verdict. Where rank 0 is lost nothing is known of the others.
  std::vector<int> lost() const;
  // The same; waits for them, no longer than a silence takes to be noticed. Empty then, or after end().
  std::vector<int> verdict() const;
  // Lost, or, once there is a verdict, silent for as long: it may have left because of the first. True for
  // all when nothing comes from rank 0 any more.
  bool fell_silent(int rank) const;
  // Ranks but 0 without a sign for so long by now: a look is missed now and then on a busy machine.
  std::vector<int> silent_for(Duration duration) const;
  const std::shared_ptr<const Alarm>& alarm() const { return alarm_; }

 private:
  struct State;

  std::shared_ptr<State> state_;
  std::shared_ptr<const Alarm> alarm_;
};

}  // namespace holdfast::inline v1
