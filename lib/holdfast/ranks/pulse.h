// Signs of life: which ranks have fallen silent, whatever their other threads do.
//
// A thread of each process increments its key in the store every 0.5 s up to 512 ranks, and every 2 s at most
// (pulse_options()). Rank 0's thread reads all keys and writes which have not moved, and for how many of its
// polls. Every rank reads that text. A rank that is silent for `looks` polls is lost. All ranks know it about
// two seconds later, and up to 8 s later in a world of 4,096. Counting polls, not seconds,
// means that a process that was stopped has missed polls itself and accuses nobody. docs/ranks_in_detail.md
// has the cases.
//
// Errors: none; std::system_error without memory for a thread. Threads: any, except end(). Costs two threads
// and a connection to the store, which should not be shared: long texts would delay signs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

// Flags that are raised once and never lowered.
struct Alarm {
  std::atomic<bool> rank{false};   // a rank is lost
  std::atomic<bool> store{false};  // rank 0, or the store itself, is lost
};

struct PulseOptions {
  // Time between two signs of a rank, and between two polls.
  Duration period = std::chrono::milliseconds(500);
  // Polls without a sign of life after which a rank is lost.
  int looks = 12;
  // Signs of a rank from one answer of rank 0 to the next.
  int answer_every = 1;
  // Polls by which rank 0 acts later than the others: about a second.
  int looks_to_tell = 2;
};

// For a run of that size. More ranks give signs less often, so that rank 0 stays below 2 % of a core: twice a
// second up to 512 ranks, once a second up to 1,024, every two seconds at most; and it answers every second
// sign, but every one while a rank is silent. Six polls at least find a loss.
HOLDFAST_EXPORT PulseOptions pulse_options(int world_size, Duration silence);

// A rank that evaluates, reads or compiles still gives signs; one that a debugger or SIGSTOP stops does not.
// A rank whose machine is about to stand still announces it with its signs. All ranks may then be silent that
// much longer, until that rank withdraws it: a machine has several ranks, and one of them hears of the pause.
// A rank may also call rank 0, which hears it within about a second.
//
// Keys: beat/<r>: a sign; pulse (rank 0): its tale (signs_of_life.h).
class HOLDFAST_EXPORT Pulse {
 public:
  // Calls `on_loss` once, from a thread of this object, when a rank is lost.
  Pulse(std::shared_ptr<RankStore> store, std::string prefix, int rank, int world_size,
        PulseOptions options = {}, std::function<void()> on_loss = {});
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // Announces that this machine may stand still for `longest`; zero withdraws it. Any thread.
  void expect_silence(Duration longest) noexcept;
  // Sets whether this rank calls rank 0. Any thread.
  void call(bool so) noexcept;
  // Rank 0: true while another rank calls. Any thread.
  bool called() const noexcept;
  // Ends signs and verdicts of this process. Leaves a thread behind that waits for the store.
  void end() noexcept;

  // The lost ranks of the first verdict. If rank 0 is lost, nothing is known of the others.
  std::vector<int> lost() const;
  // As lost(), but waits for a verdict as long as one may take. Empty if none came, or after end().
  std::vector<int> verdict() const;
  // True if the rank is lost, or after a verdict has been silent as long: it may have left because of the
  // first loss. True for all ranks if rank 0 gives no signs.
  bool fell_silent(int rank) const;
  // Ranks other than 0 that have given no sign for `duration`. A busy machine misses a sign now and then.
  std::vector<int> silent_for(Duration duration) const;
  // One line for a person: what was last heard of the ranks, and how long ago.
  std::string account() const;
  const std::shared_ptr<const Alarm>& alarm() const { return alarm_; }

 private:
  struct State;

  std::shared_ptr<State> state_;
  std::shared_ptr<const Alarm> alarm_;
};

}}  // namespace holdfast::v0_2
