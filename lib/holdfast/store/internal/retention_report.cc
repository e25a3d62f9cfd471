#include "holdfast/store/internal/retention_report.h"

#include <algorithm>
#include <tuple>

namespace holdfast { inline namespace v0_2 {
namespace {

using Fate = RetentionReport::Fate;
using Judged = std::pair<Fate, std::string>;

Judged judge_checkpoint(FileId id, const DirectoryEntry& entry, const internal::RetentionPlanner::Plan& plan,
                        const Selection& selection) {
  // The order matters: a reason to stay outranks one to go.
  if (entry.kind != FileKind::regular) return {Fate::left_alone, "not a regular file"};
  if (const auto found = plan.stay.find(id); found != plan.stay.end()) return {Fate::stays, found->second};
  if (const auto found = plan.left.find(id); found != plan.left.end())
    return {Fate::left_alone, found->second};
  if (std::find(plan.go.begin(), plan.go.end(), id) != plan.go.end())
    return {Fate::goes, "no policy wants it"};
  for (const Skipped& skipped : selection.skipped) {
    if (skipped.name == entry.name) return {Fate::left_alone, skipped.reason};
  }
  return {Fate::left_alone, "of another history: the newest checkpoint did not grow from it"};
}

Judged judge(const DirectoryEntry& entry, AttemptNumber own) {
  if (parse_damaged_name(entry.name)) return {Fate::left_alone, "set aside as damaged"};
  const auto owner = parse_temporary_name(entry.name);
  if (!owner || entry.kind == FileKind::directory) return {Fate::left_alone, "not a name of Holdfast's"};
  // Temporary files of this very attempt are being written now.
  if (*owner == own) return {Fate::left_alone, "in use"};
  return {Fate::goes, "half-written by attempt " + std::to_string(*owner)};
}

// Small files for people, wrappers and later starts; no part of the report.
bool is_small_print(const std::string& name) {
  const std::string note =
      name.ends_with(kNewNoteEnding) ? name.substr(0, name.size() - (sizeof kNewNoteEnding - 1)) : name;
  return note == kStandbyName || note == kHomeStateName || name == kAttemptsDirectory ||
         name == kRunStateName || name == kKernelsDirectory || parse_ledger_name(name).has_value();
}

}  // namespace

std::uint64_t RetentionReport::bytes_that_go() const {
  std::uint64_t bytes = 0;
  for (const File& file : files) bytes += file.fate == Fate::goes ? file.bytes : 0;
  return bytes;
}

namespace internal {

RetentionReport report_of(const Directory& run, AttemptNumber own, const RetentionPlanner::Plan& plan,
                          const Selection& selection) {
  RetentionReport report;
  for (const DirectoryEntry& entry : run.list()) {
    if (is_small_print(entry.name)) continue;
    const auto id = parse_checkpoint_name(entry.name);
    auto [fate, reason] = id ? judge_checkpoint(*id, entry, plan, selection) : judge(entry, own);
    const auto status = entry.kind == FileKind::regular ? run.status(entry.name) : std::nullopt;
    report.files.push_back({.name = entry.name,
                            .id = id,
                            .bytes = status ? status->size : 0,
                            .fate = fate,
                            .reason = std::move(reason)});
  }
  std::sort(report.files.begin(), report.files.end(), [](const auto& a, const auto& b) {
    // Newest first, as `ls` shows them; files without an identifier follow by name.
    if (a.id != b.id) return a.id > b.id;
    return a.name < b.name;
  });
  return report;
}

}  // namespace internal
}}  // namespace holdfast::v0_2
