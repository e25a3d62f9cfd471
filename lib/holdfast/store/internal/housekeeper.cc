#include "holdfast/store/internal/housekeeper.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// One shows what happened, the second whether it happened before; more would only fill the volume.
constexpr std::size_t kDamagedKept = 2;

}  // namespace

void Housekeeper::carry_out(std::span<const FileId> go) {
  for (const FileId id : go) {
    const std::string name = checkpoint_name(id);
    // Before every unlink (rule 6): between two deletions a newer attempt may have chosen one of these
    // files.
    attempt_.check_not_superseded();
    reaper_.unlink(directory_.run(), name);
    log_debug("deleted {}", name);
  }
}

void Housekeeper::move_damaged(const std::vector<FileId>& damaged) {
  for (const FileId id : damaged) {
    attempt_.check_not_superseded();
    try {
      // A name that is taken keeps both files as they are; the loop below counts only files that were set
      // aside.
      directory_.run().rename_new(checkpoint_name(id), damaged_name(id));
    } catch (const IoError& error) {
      if (error.code() != ENOENT) throw;  // moved by an earlier round
    }
  }
  std::vector<FileId> aside;
  for (const DirectoryEntry& entry : directory_.run().list()) {
    const auto id = parse_damaged_name(entry.name);
    if (id && entry.kind == FileKind::regular) aside.push_back(*id);
  }
  std::sort(aside.begin(), aside.end(), std::greater<>());
  for (std::size_t i = kDamagedKept; i < aside.size(); ++i) {
    attempt_.check_not_superseded();
    reaper_.unlink(directory_.run(), damaged_name(aside[i]));
    log_debug("deleted {}", damaged_name(aside[i]));
  }
}

}}}  // namespace holdfast::v0_2::internal
