#include "holdfast/mirror/trainer_signs.h"

#include "holdfast/base/error.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A copy asks after every block, and a look lists the run directory.
constexpr Duration kLookAgain = std::chrono::milliseconds(50);
// Often enough, because the trainer writes its progress every 10 s.
constexpr Duration kEndAgain = std::chrono::seconds(1);
// A file that is older may be a leftover, and a very slow write must not hold the mirror back for ever.
constexpr Duration kLeftOver = std::chrono::seconds(30);

}  // namespace

bool TrainerSigns::writes() {
  const SteadyTime now = clock_.now();
  if (now < next_look_) return writes_;
  next_look_ = now + kLookAgain;
  try {
    writes_ = look_for_writing();
  } catch (const Error&) {
    // What cannot be seen must not hold the mirror up.
    writes_ = false;
  }
  return writes_;
}

bool TrainerSigns::look_for_writing() {
  const auto run = file_system_.open_directory(directory_, false);
  if (!run) return false;
  const AttemptNumber newest = highest_attempt(*run);
  std::string found;
  for (const DirectoryEntry& entry : run->list()) {
    // Temporary files of older attempts are leftovers, which the next start sweeps.
    if (parse_temporary_name(entry.name) == newest && !old_.contains(entry.name)) found = entry.name;
  }
  if (found.empty()) return false;
  const SteadyTime now = clock_.now();
  // Each save has a name of its own, so the time is that of one write.
  if (found != name_) {
    name_ = found;
    since_ = now;
  }
  if (now < since_ + kLeftOver) return true;
  // Remembered, so that it does not count again after a newer write has come and gone.
  old_.insert(found);
  return false;
}

bool TrainerSigns::end_is_announced() {
  const SteadyTime now = clock_.now();
  if (now < next_end_) return ends_;
  next_end_ = now + kEndAgain;
  // A read that fails is no news: an end that was announced stays announced.
  try {
    ends_ = look_for_end();
  } catch (const Error&) {  // as before
  }
  return ends_;
}

bool TrainerSigns::look_for_end() {
  const auto run = file_system_.open_directory(directory_, false);
  const auto progress = run ? read_progress(*run, highest_attempt(*run)) : std::nullopt;
  if (!progress || progress->end_unix_ms < 0) return false;
  return clock_.wall_now() < WallTime(std::chrono::milliseconds(progress->end_unix_ms)) + kAliveAfter;
}

}}  // namespace holdfast::v0_2
