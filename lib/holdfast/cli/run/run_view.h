// All that a run directory tells about its newest attempt: claim, state, ledger, progress, the newest
// checkpoint, room on the volume. `status` and `health` judge by it. Reads only.
//
// Directories of earlier versions have no progress file; their ledgers tell step and durable step.
// Errors: IoError if the directory cannot be opened or listed. Threads: plain values. Waits for the volume,
// possibly for ever.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/io/volume_space.h"
#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/run_progress.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 {

struct RunView {
  std::string directory;
  WallTime now{};
  AttemptWord newest = {};     // attempt 0: nobody has ever trained here
  AttemptNumber restarts = 0;  // attempts that trained before it (attempts_before())
  // unknown: it ran on another machine, in another container, or before the last boot.
  enum class Process { unknown, runs, gone };
  Process process = Process::unknown;
  LedgerLife life = {};                        // empty if the attempt has not begun to train
  std::optional<RunProgress> progress = {};    // nullopt: none yet, or an earlier version
  std::optional<WallTime> durable_since = {};  // when training stood at the newest durable step
  // Why the next start would end with 78; empty: it would not, or the attempt still runs.
  std::string refusal = {};
  std::optional<VolumeSpace> volume = {};
  std::optional<HomeRecord> home = {};      // nullopt: no mirror was ever here
  std::optional<StandbySign> standby = {};  // nullopt: none waits
  std::string stall = {};                   // the newest "attempts/<n>.stall.txt"; empty: none

  // The attempt said how it ended, in its state or at least in its ledger.
  bool ended() const;
  // Newest sign of life, by the wall clock of the machine that trains; nullopt: it gave none.
  std::optional<WallTime> last_sign() const;
};

// The files that tell where attempts hung, oldest first: "attempts/3.stall.txt".
std::vector<std::string> stall_files(Directory& run);

RunView look_at_run(const std::filesystem::path& directory, const Clock& clock = Clock::real());

}}  // namespace holdfast::v0_2
