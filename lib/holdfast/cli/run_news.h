// What a run directory says to a wrapper: how far the run is, whether it is complete, and whether a notice
// says that this machine goes away. Reads only, and believes the highest attempt alone.
//
// Errors: none; what cannot be read is said in `silence`. Threads: plain values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/store/run_state.h"

namespace holdfast::inline v1 {

struct RunNews {
  std::optional<RunState> state;
  std::string silence;  // why there is no state, for people: "there is no /mnt/ckpt/run1"
  // When this machine goes away, if the highest attempt lived on it since it was started and heard so.
  std::optional<SteadyTime> deadline;
};

RunNews read_run_news(const std::filesystem::path& directory, const Clock& clock = Clock::real());

// Why `news` is no reason to believe that the run is complete; empty: it is.
std::string doubt_of_completion(const RunNews& news);

}  // namespace holdfast::inline v1
