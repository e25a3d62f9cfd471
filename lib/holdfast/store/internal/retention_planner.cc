#include "holdfast/store/internal/retention_planner.h"

#include <algorithm>

#include "holdfast/base/log.h"
#include "holdfast/store/internal/bad_file.h"
#include "holdfast/store/recovery.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

Verdict verdict_of(const CheckpointInfo& checkpoint) {
  return {.step = checkpoint.step,
          .attempt = checkpoint.attempt,
          .ancestry = checkpoint.ancestry,
          .finite = checkpoint.finite,
          .metrics = checkpoint.metrics,
          .unix_seconds = checkpoint.unix_seconds};
}

// A file may claim any time. The difference must stay representable.
Duration since(std::chrono::seconds now, std::int64_t unix_seconds) {
  constexpr std::chrono::seconds kLongest = std::chrono::hours(100 * 365 * 24);
  const std::int64_t then = std::clamp(unix_seconds, (now - kLongest).count(), (now + kLongest).count());
  return now - std::chrono::seconds(then);
}

bool content_matches(FileId id, const Verdict& verdict) {
  return verdict.kind == Verdict::Kind::good &&
         id == FileId{.attempt = verdict.attempt, .step = verdict.step};
}

}  // namespace

void RetentionPlanner::wrote(const CheckpointInfo& checkpoint) {
  verified(checkpoint);
  written_.emplace(FileId{.attempt = checkpoint.attempt, .step = checkpoint.step}, clock_.now());
}

void RetentionPlanner::verified(const CheckpointInfo& checkpoint) {
  const FileId id{.attempt = checkpoint.attempt, .step = checkpoint.step};
  trusted_[id] = checkpoint.finite;
  heads_[id] = verdict_of(checkpoint);
}

RetentionPlanner::Plan RetentionPlanner::plan(Directory& run, const Lineage& lineage,
                                              FileId newest_acknowledged) {
  forget_deleted(run, lineage);
  RetentionView view = view_of(run, lineage, newest_acknowledged);
  // The deletions may leave the newest finite file as the only good one. So read it again, from the device.
  // Each turn either confirms a file or takes one out of the view, so the loop ends.
  while (is_needed(view) && !holds(run, *view.newest_finite))
    view = view_of(run, lineage, newest_acknowledged);
  Plan plan;
  plan.left = not_good_;
  plan.stay = staying(view, keep_);
  for (const FileId id : superfluous(view, keep_)) {
    std::string reason;
    try {
      // An untrusted file may still be of a newer format or misnamed; those are never deleted (rule 4).
      if (!trusts(id)) reason = why_left(run, id);
    } catch (const IoError& error) {
      set_aside(id, error);
      reason = not_good_.at(id);
    }
    if (reason.empty()) {
      plan.go.push_back(id);
    } else {
      plan.left.emplace(id, reason);
    }
  }
  return plan;
}

RetentionView RetentionPlanner::view_of(Directory& run, const Lineage& lineage, FileId newest_acknowledged) {
  RetentionView view{.present = files_of(run, lineage),
                     .trusted = trusted_,
                     .newest_acknowledged = newest_acknowledged,
                     .newest_finite = {}};
  // The following reads files and only adds to what stays, so skip it if nothing would go.
  if (superfluous(view, keep_).empty()) return view;
  const std::size_t not_good = not_good_.size();
  if (keep_.reads_content()) view.facts = facts(run, view.present);
  view.newest_finite = newest_finite(run, view.present);
  // set_aside() removes a file from the view, so compute the view again.
  return not_good_.size() == not_good ? view : view_of(run, lineage, newest_acknowledged);
}

// False in a run with finite losses: there the newest finite file was written and read back just now.
bool RetentionPlanner::is_needed(const RetentionView& view) const {
  if (!view.newest_finite || *view.newest_finite == view.newest_acknowledged) return false;
  const std::vector<FileId> go = superfluous(view, keep_);
  return std::any_of(go.begin(), go.end(), [&](FileId id) { return id < *view.newest_finite; });
}

bool RetentionPlanner::holds(Directory& run, FileId id) {
  try {
    verify(run, id, true);
  } catch (const IoError& error) {
    set_aside(id, error);
  }
  return trusts(id) && !not_good_.contains(id);
}

// Keeps the maps of a process with many saves from growing.
void RetentionPlanner::forget_deleted(Directory& run, const Lineage& lineage) {
  const std::vector<FileId> present = files_of(run, lineage);
  const auto gone = [&](const auto& known) {
    // Only the newest attempt adds files, so what is known of the others does not grow.
    return known.first.attempt == lineage.own &&
           !std::binary_search(present.begin(), present.end(), known.first, std::greater<>());
  };
  std::erase_if(trusted_, gone);
  std::erase_if(heads_, gone);
  std::erase_if(written_, gone);
}

void RetentionPlanner::set_aside(FileId id, const IoError& error) {
  // All knowledge about it goes, so that no rule counts it as one of the two good files.
  trusted_.erase(id);
  heads_.erase(id);
  not_good_[id] = std::string("cannot be read: ") + error.what();
  log_warning("retention leaves {} alone: {}", checkpoint_name(id), error.what());
}

// For a file that nobody verified here only the head is known, and its name may be wrong.
std::string RetentionPlanner::why_left(Directory& run, FileId id) {
  const Verdict* const verdict = head(run, id);
  if (verdict == nullptr) return "gone meanwhile";
  if (verdict->kind == Verdict::Kind::newer_format) return "of a newer format: " + verdict->reason;
  if (verdict->kind == Verdict::Kind::good && !content_matches(id, *verdict)) {
    return "not what its name says: it holds step " + std::to_string(verdict->step) + " of attempt " +
           std::to_string(verdict->attempt);
  }
  return {};
}

std::map<FileId, KeepFacts> RetentionPlanner::facts(Directory& run, const std::vector<FileId>& present) {
  std::map<FileId, KeepFacts> facts;
  const auto now = std::chrono::floor<std::chrono::seconds>(clock_.wall_now()).time_since_epoch();
  // Oldest first: a newer file's value for the same step was measured later.
  for (auto id = present.rbegin(); id != present.rend(); ++id) {
    const Verdict* verdict = nullptr;
    try {
      verdict = head(run, *id);
    } catch (const IoError& error) {
      set_aside(*id, error);
    }
    if (verdict == nullptr || !content_matches(*id, *verdict)) continue;
    for (const auto& [metric, values] : verdict->metrics) {
      for (const auto& [step, value] : values) known_[metric][step] = value;
    }
    KeepFacts& file = facts[*id];
    file.finite = verdict->finite;
    // The steady clock for own files: a wall clock that jumps must not age them.
    if (const auto written = written_.find(*id); written != written_.end()) {
      file.age = clock_.now() - written->second;
    } else if (verdict->unix_seconds) {
      // For others only their wall clock is known.
      file.age = since(now, *verdict->unix_seconds);
    }
  }
  for (const auto& [metric, values] : known_) {
    for (auto& [id, file] : facts) {
      const auto value = values.find(id.step);
      if (value != values.end()) file.metrics[metric] = value->second;
    }
  }
  // Keeps the values of a process with many saves from growing.
  for (auto& [metric, values] : known_) {
    std::erase_if(values, [&](const auto& value) {
      return std::none_of(present.begin(), present.end(), [&](FileId id) { return id.step == value.first; });
    });
  }
  say_unknown_metrics(facts);
  return facts;
}

void RetentionPlanner::say_unknown_metrics(const std::map<FileId, KeepFacts>& facts) {
  for (const KeepPolicy& policy : keep_.policies()) {
    const auto* const best = std::get_if<KeepBest>(&policy);
    if (best == nullptr) continue;
    const bool known = std::any_of(facts.begin(), facts.end(), [&](const auto& file) {
      return file.second.metrics.contains(best->metric);
    });
    if (known || !said_unknown_.insert(best->metric).second) continue;
    log_info("no checkpoint has metric {} yet, so none is kept as the best by it", best->metric);
  }
}

std::optional<FileId> RetentionPlanner::newest_finite(Directory& run, const std::vector<FileId>& present) {
  const auto found = std::find_if(present.begin(), present.end(), [&](FileId id) { return finite(run, id); });
  return found == present.end() ? std::nullopt : std::optional(*found);
}

// A file that others wrote counts only if all of it verifies: it may be the only good state to go back to.
bool RetentionPlanner::finite(Directory& run, FileId id) {
  if (const auto own = trusted_.find(id); own != trusted_.end()) return own->second;
  if (const auto known = others_finite_.find(id); known != others_finite_.end()) return known->second;
  const auto says_finite = [&](const Verdict* verdict) {
    return verdict != nullptr && content_matches(id, *verdict) && verdict->finite;
  };
  try {
    if (!says_finite(head(run, id))) return others_finite_[id] = false;
    const auto whole = inspect_all(run, id);
    return others_finite_[id] = whole && says_finite(&*whole);
  } catch (const IoError& error) {
    // An error of the volume is the caller's to hear.
    if (!is_about_this_file(error)) throw;
    set_aside(id, error);
    return false;
  }
}

std::vector<FileId> RetentionPlanner::files_of(const Directory& run, const Lineage& lineage) const {
  std::vector<FileId> files;
  for (const Candidate& candidate : candidates_in(run)) {
    if (candidate.kind == FileKind::regular && lineage.contains(candidate.id) &&
        !not_good_.contains(candidate.id)) {
      files.push_back(candidate.id);
    }
  }
  return files;
}

void RetentionPlanner::verify_newest(Directory& run, const Lineage& lineage) {
  const std::vector<FileId> files = files_of(run, lineage);
  // All of them stay in any case, so a look would only cost reads.
  if (files.size() <= static_cast<std::size_t>(keep_.last())) return;
  int good = 0;
  for (const FileId id : files) {
    try {
      if (!trusts(id)) verify(run, id);
    } catch (const IoError& error) {
      if (!is_about_this_file(error)) throw;  // as in finite()
      set_aside(id, error);
    }
    // Two is what rule 4 asks for; verifying more would only cost reads.
    if (trusts(id) && ++good == 2) return;
  }
}

void RetentionPlanner::verify(Directory& run, FileId id, bool uncached) {
  const auto verdict = inspect_all(run, id, uncached);
  if (!verdict) {
    trusted_.erase(id);
    others_finite_[id] = false;
    heads_.erase(id);
    return;
  }
  heads_[id] = *verdict;
  if (content_matches(id, *verdict)) {
    trusted_[id] = verdict->finite;
  } else {
    // A file under a wrong name is good data of another step, but worthless as this file.
    trusted_.erase(id);
    not_good_[id] =
        verdict->kind == Verdict::Kind::damaged ? "damaged: " + verdict->reason : why_left(run, id);
  }
}

const Verdict* RetentionPlanner::head(Directory& run, FileId id) {
  if (const auto known = heads_.find(id); known != heads_.end()) return &known->second;
  auto verdict = inspect(run, id, Verifier::Depth::head);
  // A bad page in memory must not cost the best file, so look again, on the device.
  for (int more = 0; more < 2 && verdict && verdict->kind == Verdict::Kind::damaged; ++more) {
    verdict = inspect(run, id, Verifier::Depth::head, true);
  }
  if (!verdict) return nullptr;
  return &(heads_[id] = *verdict);
}

// Damage needs two more looks that read the device, as in recovery.
std::optional<Verdict> RetentionPlanner::inspect_all(Directory& run, FileId id, bool uncached) {
  auto verdict = inspect(run, id, Verifier::Depth::full, uncached);
  for (int more = 0; more < 2 && verdict && verdict->kind == Verdict::Kind::damaged; ++more) {
    verdict = inspect(run, id, Verifier::Depth::full, true);
  }
  return verdict;
}

std::optional<Verdict> RetentionPlanner::inspect(Directory& run, FileId id, Verifier::Depth depth,
                                                 bool uncached) {
  const auto file = run.open(checkpoint_name(id), OpenMode::read);
  if (!file) return std::nullopt;
  return verifier_.inspect(*file, depth, uncached);
}

}}}  // namespace holdfast::v0_2::internal
