#include "holdfast/store/internal/housekeeper.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr std::size_t kLeastTrusted = 2;
constexpr std::size_t kDamagedKept = 2;

}  // namespace

std::vector<FileId> superfluous(const std::vector<FileId>& present, const std::map<FileId, bool>& trusted,
                                std::optional<FileId> newest_finite, FileId newest_acknowledged,
                                Retention keep) {
  std::set<FileId> stay;
  std::size_t trusted_here = 0;
  for (const FileId id : present) {
    if (id >= newest_acknowledged || stay.size() < static_cast<std::size_t>(keep.count)) stay.insert(id);
    if (trusted.contains(id) && ++trusted_here <= kLeastTrusted) stay.insert(id);
  }
  if (trusted_here < kLeastTrusted) return {};
  if (newest_finite) stay.insert(*newest_finite);
  std::vector<FileId> rest;
  for (auto id = present.rbegin(); id != present.rend(); ++id) {
    if (!stay.contains(*id)) rest.push_back(*id);
  }
  return rest;
}

void Housekeeper::delete_superfluous(const Lineage& lineage, FileId newest_acknowledged) {
  std::vector<FileId> present;
  for (const Candidate& candidate : candidates_in(directory_.run())) {
    if (candidate.kind == FileKind::regular && lineage.contains(candidate.id))
      present.push_back(candidate.id);
  }
  // The list without a finite one says already whether there is anything to do; asking costs reads.
  if (superfluous(present, trusted_, std::nullopt, newest_acknowledged, keep_).empty()) return;
  for (const FileId id : superfluous(present, trusted_, newest_finite(present), newest_acknowledged, keep_)) {
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
