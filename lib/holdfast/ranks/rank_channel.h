// The Checkpointer's interface to the other ranks, when several processes train one state together. Each rank
// has a Checkpointer, and all make the same calls at the same steps.
//
//   boundary k     ballot_of(vote) → post()           about once a second (planning/vote_cadence.h)
//   boundary k+1   result() → agreed_by() → save or stop here, on all ranks
//
// A result is the maximum of each element of all ballots, so every rank decides from the same numbers.
// Elements carry the rank that asks, so all ranks can name it. Other boundaries send nothing.
// Errors: a lost rank is an Error with ExitCode::interrupted (75); unequal steps are a UsageError; both name
// ranks. Threads: post, result, give_up and broadcast on the training thread; tell, hear and forget on any.
// Durability: none; rank 0 alone commits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Ranks are missing or lost. Committed checkpoints stand; start all ranks again. The exit code is 75.
class HOLDFAST_EXPORT GroupError : public Error {
 public:
  explicit GroupError(const std::string& message) : Error(message, ExitCode::interrupted) {}
};

// One rank's vote at a step boundary.
struct Vote {
  std::int64_t step = 0;
  bool save = false;                  // a checkpoint is due, or asked for
  bool stop = false;                  // leave the loop
  bool pause = false;                 // the announced end is near: save, and wait for it
  bool busy = false;                  // the last save is still being written, so no other can begin
  bool failing = false;               // rank 0: the last save failed, and none was acknowledged since
  std::int64_t durable = -1;          // rank 0: newest durable step
  std::optional<Duration> left = {};  // time until the end announced to this rank
  Duration needs{};                   // rank 0: time that a last save needs if it begins now; 0: unknown
  bool alone = false;                 // rank 0: writes the next checkpoint without the others
  std::int64_t plan = 0;              // identifies the file that this rank plans to share; 0: none
  std::int64_t capacity = 0;          // of that file for attributes, in bytes
  // Like `left`, but only for an end that somebody named.
  std::optional<Duration> named_left = {};
  // Until this rank's machine hibernates. It wakes up, so that is no end.
  std::optional<Duration> sleep_left = {};
  bool torn = false;       // this rank is inside an update, so its memory is no step boundary
  bool unsavable = false;  // no start could load what this rank would save
  Duration step_time{};    // what a step lasts on this rank; 0: not measured
  std::int64_t due = -1;   // rank 0: the next step at which a save by steps falls due; -1: none
};

// A vote as numbers. All ranks take the maximum of each.
using Ballot = std::array<std::int64_t, 20>;

// The result of all votes of one boundary. A rank number is the highest of those that ask; −1: none.
struct Agreed {
  std::int64_t step = 0;
  int save = -1;
  int stop = -1;
  int pause = -1;
  int busy = -1;
  bool failing = false;
  std::int64_t durable = -1;
  std::optional<Duration> left = {};  // the minimum, in milliseconds
  Duration needs{};
  bool alone = false;
  std::int64_t plan = 0;      // 0 unless all ranks plan the same file
  std::int64_t capacity = 0;  // the maximum
  int torn = -1;
  int unsavable = -1;
  std::optional<Duration> sleep_left = {};
  std::optional<Duration> named_left = {};
  Duration step_time{};  // the maximum
  std::int64_t due = -1;
  bool saves() const { return save >= 0 && busy < 0; }
  // All ranks write a checkpoint that begins now.
  bool shares() const { return plan != 0 && !alone; }
  // No save that begins now can end before the end that somebody named. All ranks compute the same answer, so
  // none waits for a rank that has given up.
  bool hopeless() const { return named_left && *named_left > Duration::zero() && *named_left < needs; }
};

// Requires 0 ≤ rank < world_size < 2²⁰ and 0 ≤ step < 2⁴².
HOLDFAST_EXPORT Ballot ballot_of(const Vote& vote, int rank, int world_size);
// The maximum element by element, as an all-reduce MAX computes it.
HOLDFAST_EXPORT Ballot larger_of(const Ballot& one, const Ballot& other);
// Throws UsageError if the votes were of unequal steps.
HOLDFAST_EXPORT Agreed agreed_by(const Ballot& largest, int world_size);

class HOLDFAST_EXPORT RankChannel {
 public:
  virtual ~RankChannel() = default;

  // Claims the channel for one Checkpointer; a second one would receive the first one's messages. UsageError
  // the second time.
  void take();

  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;  // at least 1
  // How long a partner may be busy with something else (an evaluation, a slow read) before it counts as lost.
  virtual Duration timeout() const noexcept = 0;

  // Begins the exchange of one ballot. Never blocks. Requires that none is pending.
  virtual void post(const Ballot& mine) = 0;
  // Result of the pending exchange. nullopt if it did not arrive within `limit`; it is then still pending.
  // Throws if a partner is lost.
  virtual std::optional<Ballot> result(Duration limit) = 0;
  // `what` did not arrive within `waited`: finds out which rank is lost, ends all exchanges, and throws.
  [[noreturn]] virtual void give_up(const std::string& what, Duration waited) = 0;

  // Small texts between ranks, independent of exchanges. Each name is told once.
  virtual void tell(const std::string& name, std::string_view text) = 0;
  // Waits for `rank`'s text of that name, at most `limit`. Throws if it does not arrive, and at once if that
  // rank is known to be lost.
  virtual std::string hear(int rank, const std::string& name, Duration limit) = 0;
  // Releases this rank's text of that name; every rank that needs it has heard it.
  virtual void forget(const std::string& name) = 0;
  // For a rank that waits for something else: throws if a rank is known to be lost. Does not wait while all
  // live.
  virtual void require_all() {}
  // For rank 0, with which the channel ends: that rank has ended by an error, or is lost.
  virtual bool has_left(int /*rank*/) { return true; }

  // The next three bypass votes; others notice within about a second. This rank's machine is about to stand
  // still for at most `longest` (zero: no longer), so its ranks must be waited for. Any thread.
  virtual void expect_silence(Duration /*longest*/) noexcept {}
  // This rank has heard something that must not wait for a vote (true), or that is over (false). Any thread.
  virtual void call(bool /*so*/) noexcept {}
  // Rank 0: another rank calls now. Any thread.
  virtual bool called() const noexcept { return false; }
  // Every save on which this process still works holds it, so that the channel knows of them when a rank is
  // lost. Empty: the channel does not ask.
  virtual std::weak_ptr<const void> saves_in_flight() const { return {}; }

  // Copies rank 0's bytes into a buffer of the same size on every rank. Collective and blocking: for the
  // start.
  virtual void broadcast(std::span<std::byte> bytes) = 0;

 private:
  bool taken_ = false;
};

}}  // namespace holdfast::v0_2
