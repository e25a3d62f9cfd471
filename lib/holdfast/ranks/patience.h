// How long a rank waits for texts of another: in slices, so that the wait ends early if a machine's end is
// announced or a rank is lost.
//
//   patience.end_by(deadline);                                   // any thread
//   hear_patiently(channel, clock, 0, "ready", minutes(2), &patience);
//
// Errors: hear_patiently() throws Error (75) after the limit, and passes on what RankChannel::hear throws at
// once. Threads: Patience any; hear_patiently() as RankChannel::hear.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/ranks/rank_channel.h"

namespace holdfast { inline namespace v0_2 {

// A second limit for waits, which another thread may shorten while a rank waits. Noticed within two seconds.
class Patience {
 public:
  void end_by(SteadyTime end) noexcept { end_ = end.time_since_epoch().count(); }
  void renew() noexcept { end_by(SteadyTime::max()); }
  SteadyTime end() const noexcept { return SteadyTime(SteadyTime::duration(end_.load())); }

 private:
  std::atomic<SteadyTime::rep> end_{SteadyTime::max().time_since_epoch().count()};
};

// nullopt: the text did not come within `slice`. Passes on what RankChannel::hear throws earlier.
std::optional<std::string> hear_within(RankChannel& channel, int rank, const std::string& name,
                                       Duration slice);

// Calls RankChannel::hear() in slices, so that `patience` (nullptr: none) can end the wait. `limit` counts by
// the channel's clock and by `clock`. Does not wait for a rank that is known to be lost.
std::string hear_patiently(RankChannel& channel, Clock& clock, int rank, const std::string& name,
                           Duration limit, const Patience* patience);

}}  // namespace holdfast::v0_2
