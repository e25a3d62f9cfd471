#include "holdfast/store/internal/state_writer.h"

#include <cerrno>
#include <string_view>

#include "holdfast/base/error.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1::internal {
namespace {

void replace_file(Directory& directory, Attempt& attempt, const std::string& name, std::string_view text) {
  const std::string temporary = temporary_name(attempt.number(), "state");
  auto file = directory.open(temporary, OpenMode::create);
  if (!file) {  // of an earlier write that failed
    directory.unlink(temporary);
    file = directory.open(temporary, OpenMode::create);
    if (!file) throw Error(directory.path() + "/" + temporary + " comes back after it was removed");
  }
  file->write_at(std::as_bytes(std::span(text)), 0);
  file->sync();
  file->close();
  attempt.look();
  try {
    directory.rename_over(temporary, name);
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
    attempt.look();
    attempt.supersede("its temporary file " + temporary + " was removed");
  }
}

void sweep(Directory& directory, Attempt& attempt, BlockReaper& reaper) {
  for (const DirectoryEntry& entry : directory.list()) {
    const auto owner = parse_temporary_name(entry.name);
    if (!owner || *owner >= attempt.number() || entry.kind == FileKind::directory) continue;
    attempt.look();
    reaper.unlink(directory, entry.name);
  }
}

}  // namespace

void write_state(RunDirectory& directory, Attempt& attempt, const RunState& state) {
  const std::string text = to_json(state);
  attempt.look();
  replace_file(*directory.attempts(), attempt, state_name(attempt.number()), text);
  directory.attempts()->sync();
  replace_file(directory.run(), attempt, kRunStateName, text);
}

void sweep_temporaries(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper) {
  attempt.look();
  sweep(*directory.attempts(), attempt, reaper);
  sweep(directory.run(), attempt, reaper);
  directory.sync();
}

}  // namespace holdfast::inline v1::internal
