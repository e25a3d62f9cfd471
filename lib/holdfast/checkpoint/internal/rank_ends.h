// What votes tell about announced ends: those of this rank's own sources go into its votes, and rank 0 learns
// those of other ranks, by which it plans.
//
// Errors: std::bad_alloc. Threads: the training thread.
#pragma once

#include <chrono>
#include <optional>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RankEnds {
 public:
  static constexpr char kOthers[] = "another rank";  // the source of what votes tell
  // Two votes about the same notice may differ by less than this, because clocks tick.
  static constexpr Duration kSameTime = std::chrono::seconds(1);
  static constexpr Monitor::Which kEnds{.sleeps = Monitor::Sleeps::left_out};

  RankEnds(Run& run, const RankGroup& group) : run_(run), group_(group) {}

  void put_in(Vote& vote) const noexcept;
  void hear_end(const Agreed& agreed);
  void hear_sleep(const Agreed& agreed);
  // Into the log and the ledger, as if a source of this process had announced it.
  void tell_news(const Notice& notice);

 private:
  std::optional<Duration> left_here(const Monitor::Which& which) const noexcept;

  Run& run_;
  const RankGroup& group_;
};

}}}  // namespace holdfast::v0_2::internal
