// How a Checkpointer sees the other ranks of its run, when several processes train one state together.
//
// Each has a Checkpointer, and all of them make the same calls at the same steps. What they do about saves
// and stops is one decision: every after_step posts this rank's *ballot* and acts on what all ballots of the
// boundary before came to. The maximum of each element of all ballots is the whole of the communication:
//
//   boundary k    result of the ballots of k−1 (posted one step ago: it has come) → save or stop here
//                 this rank's vote on what is to be done at k+1 → ballot → post()
//
// so nobody waits for a message, every rank decides from the same numbers, and a notice that one rank alone
// has heard saves and stops all of them at one step. Elements carry the rank that asks, so that all can name
// it.
//
// Errors: what a lost partner makes impossible throws an Error with ExitCode::interrupted that names it (75;
// distributed/process_group.h has GroupError). Ranks at unequal steps are a UsageError that names two of
// them. Threads: post, result, give_up and broadcast on the training thread; tell, hear and forget on any.
// Durability: none of it; rank 0 alone commits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// What one rank has to say at a step boundary.
struct Vote {
  std::int64_t step = 0;
  bool save = false;                  // a checkpoint is due, or asked for
  bool stop = false;                  // leave the loop
  bool pause = false;                 // the end is announced and near: save, and wait for it
  bool busy = false;                  // still writing the last save: no other can begin
  bool failing = false;               // rank 0: the last save failed, and none was acknowledged since
  std::int64_t durable = -1;          // rank 0: the newest step that is safe
  std::optional<Duration> left = {};  // until the end that was announced to this rank
  Duration needs{};                   // rank 0: until a last save that is voted for now is over; 0: not known
  bool alone = false;                 // rank 0: writes the next checkpoint without the others
  std::int64_t plan = 0;              // stands for the file that this rank plans to share; 0: none
  std::int64_t capacity = 0;          // of that file for attributes, bytes
};

// The same as numbers of which all ranks take the maximum.
using Ballot = std::array<std::int64_t, 14>;

// What all votes of one boundary came to. A rank, the highest of those that ask; −1: none.
struct Agreed {
  std::int64_t step = 0;
  int save = -1;
  int stop = -1;
  int pause = -1;
  int busy = -1;
  bool failing = false;
  std::int64_t durable = -1;
  std::optional<Duration> left = {};  // the shortest, in milliseconds
  Duration needs{};
  bool alone = false;
  std::int64_t plan = 0;      // of all ranks; 0 where they plan different files
  std::int64_t capacity = 0;  // the largest
  bool saves() const { return save >= 0 && busy < 0; }
  // A checkpoint that begins now is written by all ranks.
  bool shares() const { return plan != 0 && !alone; }
  // No save that begins now is over before the end: the same answer on all ranks, so that none of them waits
  // for another that has given up.
  bool hopeless() const { return left && *left > Duration::zero() && *left < needs; }
};

// Requires 0 ≤ rank < world_size < 2²⁰ and 0 ≤ step < 2⁴².
Ballot ballot_of(const Vote& vote, int rank, int world_size);
// Element by element, the larger: what an all-reduce MAX does.
Ballot larger_of(const Ballot& one, const Ballot& other);
// UsageError when the votes were of unequal steps.
Agreed agreed_by(const Ballot& largest, int world_size);

class Companions {
 public:
  virtual ~Companions() = default;

  // By the one Checkpointer that they serve: another would hear what this one was told. UsageError the second
  // time.
  void take();

  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;  // at least 1
  // So long a partner may be busy otherwise (an evaluation, a slow read) before it counts as lost.
  virtual Duration timeout() const noexcept = 0;

  // Begins the exchange of one ballot. Never waits. Requires that none is pending.
  virtual void post(const Ballot& mine) = 0;
  // What the pending one came to: nullopt when it has not come within `limit`, and is still pending. Throws
  // when a partner was lost.
  virtual std::optional<Ballot> result(Duration limit) = 0;
  // `what` did not come within `waited`: finds out who is lost, ends all exchanges, and throws.
  [[noreturn]] virtual void give_up(const std::string& what, Duration waited) = 0;

  // Small texts between ranks, never part of an exchange: this rank's text of that name, which is told once.
  virtual void tell(const std::string& name, std::string_view text) = 0;
  // The text of that name of `rank`; waits for it, `limit` at most. Throws when it does not come, and at once
  // when that rank is known to be lost.
  virtual std::string hear(int rank, const std::string& name, Duration limit) = 0;
  // This rank's text of that name has been heard by whoever wants it.
  virtual void forget(const std::string& name) = 0;

  // Rank 0's bytes, in every rank's memory of the same size. Collective and blocking: for the start.
  virtual void broadcast(std::span<std::byte> bytes) = 0;

 private:
  bool taken_ = false;
};

}  // namespace holdfast::inline v1
