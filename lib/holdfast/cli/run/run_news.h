// What a run directory tells a wrapper: its attempts, who made them, their progress, and whether a notice
// says that this machine ends. Reads only.
//
// Errors: none; `silence` says why something could not be read. Threads: plain values. A read waits for the
// volume, possibly for ever.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/store/claim.h"

namespace holdfast { inline namespace v0_2 {

struct RunNews {
  // Newest first: the newest attempt that trains, and all that are newer than the caller's number.
  std::vector<AttemptWord> attempts = {};
  std::string silence = {};  // why there is none, for people: "there is no /mnt/ckpt/run1"
  bool readable = false;     // false: the directory could not be read, so `attempts` has no meaning
  // When this machine ends, if the newest attempt ran on this boot of it and got a notice.
  std::optional<SteadyTime> deadline = {};
  bool time_is_over = false;  // the newest attempt's own time: max_wall, the Slurm job (announced_ends.h)
  // Time since the newest attempt's last sign of life, by its machine's wall clock. nullopt: it has only
  // claimed the run.
  std::optional<Duration> silent_for = {};

  bool standby_says_complete = false;  // a standby with a HOME has found the run complete there

  // 0: the directory was never claimed.
  AttemptNumber newest() const { return attempts.empty() ? 0 : attempts.front().attempt; }
};

RunNews read_run_news(const std::filesystem::path& directory, AttemptNumber since = 0,
                      const Clock& clock = Clock::real());

}}  // namespace holdfast::v0_2
