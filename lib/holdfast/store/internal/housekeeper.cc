#include "holdfast/store/internal/housekeeper.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr std::size_t kDamagedKept = 2;

}  // namespace

void Housekeeper::delete_superfluous(const Lineage& lineage, FileId newest_acknowledged) {
  RetentionView view{
      .present = {}, .trusted = trusted_, .newest_acknowledged = newest_acknowledged, .newest_finite = {}};
  for (const Candidate& candidate : candidates_in(directory_.run())) {
    if (candidate.kind == FileKind::regular && lineage.contains(candidate.id)) {
      view.present.push_back(candidate.id);
    }
  }
  // Asking for the newest finite one may cost reads.
  if (superfluous(view, keep_).empty()) return;
  view.newest_finite = newest_finite(view.present);
  for (const FileId id : superfluous(view, keep_)) {
    const std::string name = checkpoint_name(id);
    if (!trusted_.contains(id)) {
      const auto verdict = inspect(id, Verifier::Depth::head);
      if (!verdict || verdict->kind == Verdict::Kind::newer_format) continue;
      const FileId content{.attempt = verdict->attempt, .step = verdict->step};
      if (verdict->kind == Verdict::Kind::good && content != id) continue;
    }
    attempt_.look();
    directory_.run().unlink(name);
    log_debug("deleted {}", name);
  }
}

std::optional<FileId> Housekeeper::newest_finite(const std::vector<FileId>& present) {
  const auto found = std::find_if(present.begin(), present.end(), [&](FileId id) { return finite(id); });
  return found == present.end() ? std::nullopt : std::optional(*found);
}

// A file that others wrote counts when all of it verifies: it may be the only good past there is.
bool Housekeeper::finite(FileId id) {
  if (const auto own = trusted_.find(id); own != trusted_.end()) return own->second;
  if (const auto known = others_finite_.find(id); known != others_finite_.end()) return known->second;
  const auto says_finite = [&](Verifier::Depth depth) {
    const auto verdict = inspect(id, depth);
    return verdict && verdict->kind == Verdict::Kind::good && verdict->finite && verdict->step == id.step &&
           verdict->attempt == id.attempt;
  };
  return others_finite_[id] = says_finite(Verifier::Depth::head) && says_finite(Verifier::Depth::full);
}

std::optional<Verdict> Housekeeper::inspect(FileId id, Verifier::Depth depth) {
  const auto file = directory_.run().open(checkpoint_name(id), OpenMode::read);
  if (!file) return std::nullopt;
  return verifier_.inspect(*file, depth, false);
}

void Housekeeper::move_damaged(const std::vector<FileId>& damaged) {
  for (const FileId id : damaged) {
    attempt_.look();
    try {
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
    attempt_.look();
    directory_.run().unlink(damaged_name(aside[i]));
    log_debug("deleted {}", damaged_name(aside[i]));
  }
}

}  // namespace holdfast::inline v1::internal
