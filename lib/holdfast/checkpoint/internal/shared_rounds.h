// Saves that all ranks write together, into one file (ranks/shared_write.h).
//
// A *round* is a save that all ranks have agreed on; its number is the same on all. At the boundary each rank
// stages its share, on the training thread. Then rank 0's writer thread leads, and a thread of each other
// rank follows (ShareSender). Those wait for rank 0's first text. So from begin() on rank 0 must send one,
// even without time or memory for the save, or if it must write alone.
//
// Errors: find_volume() as RankChannel; led() throws std::bad_alloc. Threads: the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/shared_write.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class SharedRounds {
 public:
  SharedRounds(Run& run, RankGroup& group) : run_(run), group_(group) {}

  // After the claim: which ranks see rank 0's volume. Collective.
  void find_volume();

  // Before a vote, for a state that may have changed its form.
  void lay_out_again() noexcept;
  void begin(const Agreed& agreed);
  void end(const Decision& decision) noexcept;
  // Number of the plan by which all ranks write the save that begins now; 0: rank 0 writes alone.
  std::int64_t plan() const { return plan_; }
  std::uint64_t number() const { return number_; }
  // Rank 0, for its writer, which must send the first text once it has the save (handed_over). Null: no text
  // is expected.
  std::shared_ptr<JointSave> led(const WriteRequest& request, std::shared_ptr<const Shares> shares) const;
  void handed_over() noexcept { owed_ = false; }

  // Shorter than the time after which others count this rank as lost: it does not vote while it waits.
  Duration longest_wait() const { return group_.channel().timeout() / 2; }
  SharedWriteOptions limits() const;
  // Ends waits for other ranks at an announced end.
  void limit_patience() noexcept;
  // The end has moved by more than `by` since limit_patience().
  bool end_has_moved(Duration by) const;

 private:
  Run& run_;
  RankGroup& group_;
  std::uint64_t number_ = 0;  // the same on all ranks
  std::int64_t plan_ = 0;     // Agreed::plan
  bool owed_ = false;         // rank 0 must still send the others the first word
  std::optional<SteadyTime> patient_until_;
};

}}}  // namespace holdfast::v0_2::internal
