#include "holdfast/store/internal/state_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/no_room.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Each state has this size at least, so that the last one fits into the space of the one before.
constexpr std::size_t kLeastBytes = 4096;
// Even if each byte needs an escape of six.
constexpr std::size_t kReasonThatFits = 500;

std::string padded(std::string text) {
  text.resize(std::max(text.size(), kLeastBytes), ' ');
  text.back() = '\n';
  return text;
}

void replace_file(Directory& directory, Attempt& attempt, const std::string& name, std::string_view text) {
  const std::string temporary = temporary_name(attempt.number(), "state");
  // Exclusive, so that a leftover is noticed instead of being extended.
  auto file = directory.open(temporary, OpenMode::create);
  if (!file) {  // left by an earlier write that failed
    directory.unlink(temporary);
    file = directory.open(temporary, OpenMode::create);
    if (!file) throw Error(directory.path() + "/" + temporary + " comes back after it was removed");
  }
  file->write_at(std::as_bytes(std::span(text)), 0);
  // Before the rename, so that a crash leaves the old content or the new one, never a torn file.
  file->sync();
  file->close();
  attempt.check_not_superseded();
  try {
    directory.rename_over(temporary, name);
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
    attempt.check_not_superseded();
    // A file server that lost its reply repeats a rename that had succeeded. State files fence nothing:
    // without a newer claim there is no successor.
    const auto found = read_small(directory, name, text.size());
    if (!found || *found != text) throw;
  }
}

// False: no file of that name has the space. A power cut can tear it, but only one of the two files: the
// attempt's own is durable before the copy is touched.
bool overwrite(Directory& directory, Attempt& attempt, const std::string& name, const RunState& state) {
  const std::string text = padded(to_json(state, kReasonThatFits));
  // Aligned to a page, as O_DIRECT needs it.
  alignas(kLeastBytes) std::array<char, kLeastBytes> page;
  if (text.copy(page.data(), page.size()) != text.size()) return false;
  const auto file = directory.open(name, OpenMode::overwrite_direct);
  if (!file || file->size() != page.size()) return false;
  attempt.check_not_superseded();
  file->write_at(std::as_bytes(std::span(page)), 0);
  file->sync();
  file->close();
  log_warning("the volume is full: the end of this attempt was written over its state before, in {}", name);
  return true;
}

void put_state(Directory& directory, Attempt& attempt, const std::string& name, const RunState& state) {
  try {
    replace_file(directory, attempt, name, padded(to_json(state)));
  } catch (const IoError& error) {
    // Others wait for an end, and `holdfast prune` for a run that has ended.
    if (!no_room(error) || !is_end(state.phase) || !overwrite(directory, attempt, name, state)) throw;
  }
}

void sweep(Directory& directory, Attempt& attempt, BlockReaper& reaper) {
  for (const DirectoryEntry& entry : directory.list()) {
    const auto owner = parse_temporary_name(entry.name);
    // Only older attempts. A newer one's files are not ours, and its claim has superseded this attempt
    // anyway.
    if (!owner || *owner >= attempt.number() || entry.kind == FileKind::directory) continue;
    attempt.check_not_superseded();
    reaper.unlink(directory, entry.name);
  }
}

}  // namespace

void write_state(RunDirectory& directory, Attempt& attempt, const RunState& state) {
  attempt.check_not_superseded();
  // The attempt's own file is durable before its copy, so the copy never says more than the file.
  put_state(*directory.attempts(), attempt, state_name(attempt.number()), state);
  directory.attempts()->sync();
  // The copy needs no directory sync: a reader that finds an old copy believes the attempt's own file.
  try {
    put_state(directory.run(), attempt, kRunStateName, state);
  } catch (const SupersededError&) {
    // Somebody goes on after such an end, and may claim as soon as the file above tells of it (a standby).
    if (state.phase != RunPhase::interrupted && state.phase != RunPhase::failed) throw;
  }
}

void sweep_temporaries(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper) {
  attempt.check_not_superseded();
  sweep(*directory.attempts(), attempt, reaper);
  sweep(directory.run(), attempt, reaper);
  // Makes the removals durable: after a crash no old temporary file may come back beside newer claims.
  directory.sync();
}

}}}  // namespace holdfast::v0_2::internal
