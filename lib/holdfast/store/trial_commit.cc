// Rule 14 of store/commit.h: can this volume hold a checkpoint at all?
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/commit.h"
#include "holdfast/store/internal/no_room.h"
#include "holdfast/store/internal/run_directory.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The errnos of a file system that lacks the call. A server may also return one of them by mistake, once.
bool may_never_work(const IoError& error) {
  const int code = error.code();
  return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == EPERM;
}

[[noreturn]] void refuse_volume(const internal::RunDirectory& directory, const std::string& why) {
  throw RefusedError(directory.path() + " cannot hold checkpoints: " + why +
                     "; choose a directory on another volume (`holdfast probe DIR` tests a volume)");
}

}  // namespace

void Committer::trial_commit(bool holds_checkpoint) {
  directory_.require_sound();
  // A trial writes files, which a superseded attempt must not do.
  if (attempt_.superseded()) throw SupersededError(attempt_.superseded_by());
  try {
    try_calls_twice(holds_checkpoint);
  } catch (const IoError& error) {
    remove_abandoned();
    if (error.code() == ENOENT) attempt_.check_not_superseded();  // a successor's sweep removes trials
    // A full disk: others may make space before the first save.
    if (!internal::no_room(error)) throw;
    log_warning("no checkpoint can be written now: {}", error.what());
  } catch (...) {
    remove_abandoned();
    throw;
  }
  remove_abandoned();
  attempt_.check_not_superseded();
}

// A refusal ends the run after its claim has ended the attempt that trained. So one answer is not enough; and
// if a checkpoint lies there, commits have worked.
void Committer::try_calls_twice(bool holds_checkpoint) {
  std::string operation;
  int code = 0;
  try {
    return try_calls();
  } catch (const IoError& error) {
    // Only "cannot" is worth a second try; any other error is reported as it is.
    if (!may_never_work(error)) throw;
    log_debug("once more: {}", error.what());
    operation = error.operation();
    code = error.code();
  }
  remove_abandoned();
  try {
    try_calls();
  } catch (const IoError& error) {
    // Two different answers are a sick volume, not one that lacks the call.
    if (holds_checkpoint || error.operation() != operation || error.code() != code) throw;
    refuse_volume(directory_, error.what());
  }
}

void Committer::try_calls() {
  const std::string first = write_trial();
  open_new("probe")->close();
  const std::string second = temporaries_.back();
  const std::string target = new_name("probe");
  rename_trial(first, target);
  const bool replaces = directory_.run().rename_new(second, target);
  // The rename kept both files apart. Now O_EXCL is tried, because claims depend on it.
  const bool creates = !replaces && directory_.run().open(target, OpenMode::create) != nullptr;
  if (replaces || creates) {
    attempt_.check_not_superseded();  // a successor's sweep removes the target, and looks the same
    refuse_volume(directory_, replaces ? "a rename that must not replace a file has replaced one"
                                       : "a file that exists can be created again (O_EXCL is ignored)");
  }
}

std::string Committer::write_trial() {
  // Aligned to a page, as O_DIRECT needs it.
  alignas(4096) std::array<std::byte, 4096> page;
  page.fill(std::byte{'H'});
  const auto trial = open_new("probe");
  std::string name = temporaries_.back();
  trial->reserve(page.size());
  trial->write_at(page, 0);
  trial->sync();
  auto read = page;
  // Cleared first, so that a read that fills nothing cannot pass.
  read.fill({});
  if (trial->read_uncached_at(read, 0) != read.size() || read != page) {
    throw IoError("read back", directory_.path_of(name), EIO, "the device does not hold what was written");
  }
  trial->close();
  return name;
}

void Committer::rename_trial(const std::string& from, const std::string& to) {
  try {
    if (!directory_.run().rename_new(from, to)) {
      refuse_volume(directory_, "a rename reports a file under a name that was never used");
    }
  } catch (const IoError& error) {
    // As in publish(): a file server may repeat a rename that had succeeded.
    if (error.code() != ENOENT || !directory_.run().status(to)) throw;
  }
  std::erase(temporaries_, from);
}

}}  // namespace holdfast::v0_2
