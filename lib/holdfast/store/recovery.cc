#include "holdfast/store/recovery.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/branch.h"
#include "holdfast/store/internal/bad_file.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A retention that runs elsewhere may delete files during the looks. So many lists in a row is not retention.
constexpr int kRelists = 100;

std::string what_is(FileKind kind) {
  if (kind == FileKind::symlink) return "a symbolic link; links are not followed in a run directory";
  return kind == FileKind::directory ? "a directory, not a file" : "not a regular file";
}

CheckpointInfo info_of(const std::string& name, const Verdict& verdict, std::uint64_t bytes) {
  return {.step = verdict.step,
          .attempt = verdict.attempt,
          .name = name,
          .bytes = bytes,
          .ancestry = verdict.ancestry,
          .branches = verdict.branches,
          .finite = verdict.finite,
          .metrics = verdict.metrics,
          .unix_seconds = verdict.unix_seconds};
}

std::string path_in(const Directory& run, const std::string& name) { return run.path() + "/" + name; }

// A state file that records a committed step.
std::optional<std::string> recorded_commit(Directory& run, Directory* attempts) {
  const auto look = [](Directory& directory, const std::string& name) -> std::optional<std::string> {
    const auto text = internal::read_small(directory, name, internal::kLongestRecord);
    const auto state = text ? run_state_from_json(*text) : std::nullopt;
    if (!state || state->durable_step < 0) return std::nullopt;
    return path_in(directory, name) + " records step " + std::to_string(state->durable_step) +
           " as committed";
  };
  // The copy first: it is one file, and its content is that of the newest state.
  if (auto found = look(run, kRunStateName)) return found;
  if (attempts == nullptr) return std::nullopt;
  for (const DirectoryEntry& entry : attempts->list()) {
    if (!parse_state_name(entry.name)) continue;
    if (auto found = look(*attempts, entry.name)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Candidate> candidates_in(const Directory& run) {
  std::vector<Candidate> found;
  for (const DirectoryEntry& entry : run.list()) {
    if (const auto id = parse_checkpoint_name(entry.name)) found.push_back({*id, entry.name, entry.kind});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.id > b.id; });
  return found;
}

Selection Recovery::select(Directory& run, Directory* attempts) {
  damaged_.clear();
  if (!options_.start.given()) return newest_of_all(run, attempts);
  if (newest_has_grown(run)) {
    Selection selection = newest_of_all(run, attempts);
    // All that has grown from there may be damaged.
    selection.has_grown = selection.newest && has_grown_from(selection.newest->branches, options_.start);
    if (selection.has_grown) return selection;
  }
  // A file elsewhere is the caller's to read.
  if (!options_.start.outside.empty()) return newest_of_all(run, attempts);
  damaged_.clear();
  return chosen(run);
}

// The newest file whose head is good decides, so that a start at another point reads no file in vain.
bool Recovery::newest_has_grown(Directory& run) {
  for (const Candidate& candidate : candidates_in(run)) {
    if (candidate.kind != FileKind::regular) continue;
    Finding found = examine_once(run, candidate.name, false, Verifier::Depth::head);
    // As in examine(): one bad look proves nothing.
    for (int more = 0; more < 2 && is_bad(found); ++more)
      found = examine_once(run, candidate.name, true, Verifier::Depth::head);
    const Verdict& head = found.verdict;
    if (found.outcome != Outcome::good || candidate.id != FileId{.attempt = head.attempt, .step = head.step})
      continue;
    return has_grown_from(head.branches, options_.start);
  }
  return false;
}

Selection Recovery::newest_of_all(Directory& run, Directory* attempts) {
  for (int i = 0; i < kRelists; ++i) {
    if (auto selection = newest_good(run, attempts)) return *selection;
  }
  throw IoError("open", run.path(), EAGAIN,
                "checkpoints vanish faster than they can be read; is another program deleting files there?");
}

std::optional<Selection> Recovery::newest_good(Directory& run, Directory* attempts) {
  Selection selection;
  std::vector<FileId> damaged;
  std::optional<IoError> refused;  // of the newest unreadable file
  // From the newest to the oldest, so the first good one is the answer.
  for (const Candidate& candidate : candidates_in(run)) {
    if (candidate.kind != FileKind::regular) {
      selection.skipped.push_back({candidate.name, "is " + what_is(candidate.kind)});
      continue;
    }
    const Finding found = examine(run, candidate.name, candidate.id);
    switch (found.outcome) {
      case Outcome::good:
        selection.newest = info_of(candidate.name, found.verdict, found.bytes);
        damaged_ = std::move(damaged);
        return selection;
      case Outcome::vanished:
        // A retention elsewhere deletes older files only, so a new list has a newer file to start from.
        return std::nullopt;
      case Outcome::newer_format:
        // Falling back to an older file would lose what the newer program has trained since.
        throw RefusedError(path_in(run, candidate.name) + " is newer than this program can read (" +
                           found.verdict.reason +
                           "); use the version that wrote it, or go back to an older one with "
                           "CheckpointerOptions::start.resume_from (--resume-from in Holdfast's example)");
      case Outcome::damaged:
        damaged.push_back(candidate.id);
        [[fallthrough]];
      case Outcome::unreadable:
        // The newest one explains best what is wrong with the volume.
        if (found.refused && !refused) refused = found.refused;
        [[fallthrough]];
      case Outcome::misnamed:
        selection.skipped.push_back({candidate.name, found.verdict.reason});
    }
  }
  // Nothing reads well. The volume may be sick, and a fresh start would hide its checkpoints.
  if (refused) throw *refused;
  if (!options_.allow_fresh && !is_fresh(run, attempts, selection.skipped)) return std::nullopt;
  return selection;
}

bool Recovery::is_fresh(Directory& run, Directory* attempts, const std::vector<Skipped>& skipped) const {
  std::string held;
  for (const Skipped& file : skipped) held += (held.empty() ? "" : "; ") + file.name + ": " + file.reason;
  for (const DirectoryEntry& entry : run.list()) {
    // Checkpoints under `.damaged` count as well: their run has held something (rule 7).
    if (!looks_like_checkpoint(entry.name) || parse_checkpoint_name(entry.name)) continue;
    held += (held.empty() ? "" : "; ") + entry.name;
  }
  if (held.empty()) {
    const auto recorded = recorded_commit(run, attempts);
    if (!recorded) return true;
    // Another attempt made the run's first commit after the list.
    if (!candidates_in(run).empty()) return false;
    held = *recorded + ", but the file is gone";
  }
  throw RefusedError(
      "no checkpoint in " + run.path() + " verifies (" + held +
      "); is it the right volume? To start over there set "
      "CheckpointerOptions::start.allow_fresh (--allow-fresh in Holdfast's example): nothing is deleted");
}

// The user's choice is verified like any other file, but an older file never replaces it.
Selection Recovery::chosen(Directory& run) {
  std::string name;
  std::optional<FileId> id;
  // A file of another name is a person's own; its content is checked, its name is not.
  if (options_.start.file) {
    name = *options_.start.file;
    id = parse_checkpoint_name(name);
  } else {
    for (const Candidate& candidate : candidates_in(run)) {
      if (candidate.id.step != *options_.start.step) continue;
      name = candidate.name;
      id = candidate.id;
      // The list is newest first, so of several attempts that saved this step the last one counts.
      break;
    }
    if (name.empty()) {
      throw RefusedError(run.path() + " holds no checkpoint of step " + std::to_string(*options_.start.step) +
                         "; `holdfast ls` shows what there is");
    }
  }
  const auto status = run.status(name);
  if (!status) throw RefusedError(path_in(run, name) + " does not exist; `holdfast ls` shows what there is");
  if (status->kind != FileKind::regular)
    throw RefusedError(path_in(run, name) + " is " + what_is(status->kind));
  const Finding found = examine(run, name, id);
  if (found.outcome == Outcome::vanished) throw RefusedError(path_in(run, name) + " has just vanished");
  if (found.outcome == Outcome::unreadable) throw *found.refused;
  if (found.outcome != Outcome::good) {
    throw RefusedError("cannot resume from " + path_in(run, name) + ": " + found.verdict.reason);
  }
  return {.newest = info_of(name, found.verdict, found.bytes), .skipped = {}};
}

Recovery::Finding Recovery::examine(Directory& run, const std::string& name, std::optional<FileId> id) {
  // The size shows whether somebody put another file there meanwhile.
  const auto known = believed_damaged_.find(name);
  if (known != believed_damaged_.end()) {
    const auto status = run.status(name);
    if (!status) return {};
    if (status->size == known->second.bytes) return known->second;
  }
  const auto earlier = found_unreadable_.find(name);
  std::optional<Finding> unreadable;
  // A file that failed three looks in an earlier selection gets one more, not three: each may take minutes.
  if (earlier != found_unreadable_.end()) unreadable = earlier->second;
  // One bad look may be a bad page in memory, so two more read the device (rule 5).
  const int looks = unreadable ? 1 : 3;
  Finding found = examine_once(run, name, false);
  for (int looked = 1;; ++looked) {
    if (found.outcome == Outcome::unreadable) unreadable = found;
    if (!is_bad(found) || looked == looks) break;
    found = examine_once(run, name, true);
  }
  // Damage beside a failed read proves nothing, so the file counts as unreadable and is not moved.
  if (unreadable && is_bad(found)) return found_unreadable_[name] = *unreadable;
  if (unreadable && found.outcome != Outcome::vanished) {
    log_warning("{}: one read failed with {} and a later one succeeded; watch that volume",
                path_in(run, name), strerrorname_np(unreadable->refused->code()));
  }
  found_unreadable_.erase(name);
  if (found.outcome == Outcome::damaged) believed_damaged_[name] = found;
  const FileId content{.attempt = found.verdict.attempt, .step = found.verdict.step};
  if (found.outcome == Outcome::good && id && *id != content) {
    found.outcome = Outcome::misnamed;
    found.verdict.reason = "is not what its name says: it holds step " + std::to_string(content.step) +
                           " of attempt " + std::to_string(content.attempt);
  }
  return found;
}

Recovery::Finding Recovery::examine_once(Directory& run, const std::string& name, bool uncached,
                                         Verifier::Depth depth) {
  try {
    const auto file = run.open(name, OpenMode::read);
    if (!file) return {};
    Finding found;
    found.bytes = file->size();
    found.verdict = verifier_.inspect(*file, depth, uncached);
    switch (found.verdict.kind) {
      case Verdict::Kind::good:
        found.outcome = Outcome::good;
        break;
      case Verdict::Kind::damaged:
        found.outcome = Outcome::damaged;
        break;
      case Verdict::Kind::newer_format:
        found.outcome = Outcome::newer_format;
        break;
    }
    return found;
  } catch (const IoError& error) {
    const IoError refused(error.operation(), error.path(), error.code(),
                          "the checkpoint itself may be good: repair the volume and start again, "
                          "or choose another checkpoint with CheckpointerOptions::start.resume_from "
                          "(--resume-from in Holdfast's example)");
    // ENOMEM, ESTALE or EACCES are about this moment or this machine, so no checkpoint is condemned for
    // them.
    if (!internal::is_about_this_file(error)) throw refused;
    Finding found{.outcome = Outcome::unreadable, .verdict = {}, .bytes = 0, .refused = refused};
    found.verdict.reason = std::string("cannot be read: ") + what_of(error) +
                           " (a bad sector or a sick volume); the file stays where it is";
    return found;
  } catch (const RefusedError& error) {  // no memory for the image; the file may be good
    throw IoError("read", path_in(run, name), ENOMEM, error.what());
  } catch (const std::bad_alloc&) {
    throw IoError("read", path_in(run, name), ENOMEM);
  }
}

}}  // namespace holdfast::v0_2
