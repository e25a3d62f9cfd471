#include "holdfast/store/internal/housekeeper.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/first_failure.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// One shows what happened, the second whether it happened before; more would only fill the volume.
constexpr std::size_t kDamagedKept = 2;

std::vector<std::string> names_of(std::span<const FileId> files, std::string (*name)(FileId)) {
  std::vector<std::string> names;
  std::transform(files.begin(), files.end(), std::back_inserter(names), name);
  return names;
}

}  // namespace

void Housekeeper::carry_out(std::span<const FileId> go) { unlink_all(names_of(go, checkpoint_name)); }

void Housekeeper::unlink_all(const std::vector<std::string>& names) {
  FirstFailure failure;
  for (const std::string& name : names) {
    // Before every unlink (rule 6): between two deletions a newer attempt may have chosen one of these
    // files.
    attempt_.check_not_superseded();
    // One file that cannot be deleted only stays; with all others the volume would fill up.
    failure.run([&] {
      reaper_.unlink(directory_.run(), name);
      log_debug("deleted {}", name);
    });
  }
  failure.rethrow();
}

void Housekeeper::move_damaged(std::vector<FileId>& damaged) {
  FirstFailure failure;
  std::vector<FileId> left;
  for (const FileId id : damaged) {
    attempt_.check_not_superseded();
    left.push_back(id);
    failure.run([&] {
      move_damaged(id);
      left.pop_back();
    });
  }
  damaged = left;
  failure.run([&] { limit_damaged(); });
  failure.rethrow();
}

void Housekeeper::move_damaged(FileId id) {
  try {
    // A name that is taken keeps both files as they are; limit_damaged() counts only files that were set
    // aside.
    directory_.run().rename_new(checkpoint_name(id), damaged_name(id));
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;  // moved by an earlier round
  }
}

void Housekeeper::limit_damaged() {
  std::vector<FileId> aside;
  for (const DirectoryEntry& entry : directory_.run().list()) {
    const auto id = parse_damaged_name(entry.name);
    // A file with a number was not found damaged (CheckpointStore::set_aside), so it stays.
    if (id && entry.kind == FileKind::regular && entry.name == damaged_name(*id)) aside.push_back(*id);
  }
  std::sort(aside.begin(), aside.end(), std::greater<>());
  if (aside.size() > kDamagedKept) unlink_all(names_of(std::span(aside).subspan(kDamagedKept), damaged_name));
}

}}}  // namespace holdfast::v0_2::internal
