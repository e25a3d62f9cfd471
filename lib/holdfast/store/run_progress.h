// What an attempt does right now, for people and probes: `attempts/<n>.progress.json`. The process rewrites
// it every 10 s, on a thread that neither trains nor commits, so a reader tells a training that stands still
// from a process that is gone. It decides nothing: no rule of the store reads it.
//
// The file is one JSON object, padded with blanks to kProgressBytes and replaced in place by one write. It is
// never synced: after a crash it may be old, empty or gone. The members `beat` and `beat_ends` at both ends
// are equal unless a read met a write; read_progress() then reads again.
// Errors: IoError. Threads: one at a time for each ProgressFile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kProgressBytes = 4096;

// saving: training stands and waits for the last save. A save beside the training is `writing_ms`.
// starting: other ranks still load the state.
enum class TrainingPhase { training, evaluating, saving, pausing, starting };
const char* word_of(TrainingPhase phase);  // "training"

struct RunProgress {
  AttemptNumber attempt = 0;
  TrainingPhase phase = TrainingPhase::training;
  std::int64_t beat = 0;     // counts up from 1
  std::int64_t unix_ms = 0;  // wall time of the machine that trains
  std::int64_t step = 0;
  std::int64_t last_step = -1;  // where the run ends; -1: it was not told
  std::int64_t still_ms = 0;    // how long training has stood at `step`
  std::optional<double> loss = {};
  std::optional<double> steps_per_second = {};  // over the last minute
  std::int64_t durable_step = -1;               // -1: nothing yet
  // What a machine that vanishes now would destroy; as in SaveFigures.
  std::int64_t risk_steps = 0;
  std::int64_t risk_ms = 0;
  // These numbers for the second place of a mirror; -1: there is none, or nothing is known of it.
  std::int64_t home_step = -1;
  std::int64_t home_risk_steps = -1;
  std::int64_t home_risk_ms = -1;
  std::int64_t writing_ms = -1;    // age of the write in flight; -1: none
  std::int64_t next_save_ms = -1;  // until a save falls due by time; -1: no trigger by time
  std::int64_t next_save_step = -1;
  std::int64_t save_interval_ms = -1;  // the shortest trigger's; -1: none, or not known yet
  std::int64_t end_unix_ms = -1;       // announced end of this machine or process, wall time; -1: none
  std::int64_t saves = 0;              // acknowledged by this attempt
  std::uint64_t saved_bytes = 0;
  std::int64_t waited_ms = 0;  // training waited for saves so far
  // The newest durable save of this attempt; 0: none yet.
  std::uint64_t last_bytes = 0;
  std::int64_t last_save_ms = 0;  // its write and commit
  std::string failure = {};       // why the last save failed; empty: it did not
};

// Exactly kProgressBytes. A failure text is cut so that it fits.
std::string to_record(const RunProgress& progress);
// nullopt: torn, empty, foreign.
std::optional<RunProgress> progress_from_record(const std::string& text);
// nullopt also if the record is another attempt's.
std::optional<RunProgress> read_progress(Directory& run_directory, AttemptNumber attempt);

class ProgressFile {
 public:
  // Opens nothing yet. `file_system` outlives it.
  ProgressFile(FileSystem& file_system, std::filesystem::path run_directory, AttemptNumber attempt)
      : file_system_(file_system), run_directory_(std::move(run_directory)), attempt_(attempt) {}

  // The first call creates the file. After a failed call the next one opens it anew.
  void write(const RunProgress& progress);

 private:
  FileSystem& file_system_;
  const std::filesystem::path run_directory_;
  const AttemptNumber attempt_;
  std::unique_ptr<File> file_;
  bool tried_ = false;  // a file of that name is this object's
};

}}  // namespace holdfast::v0_2
