#include "holdfast/store/checkpoint_store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/io/line_file.h"
#include "holdfast/io/volume_probe.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/commit.h"
#include "holdfast/store/internal/first_failure.h"
#include "holdfast/store/internal/housekeeper.h"
#include "holdfast/store/internal/no_room.h"
#include "holdfast/store/internal/old_attempts.h"
#include "holdfast/store/internal/retention_report.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/internal/state_writer.h"
#include "holdfast/store/internal/trusted_directory.h"
#include "holdfast/store/names.h"
#include "holdfast/store/recovery.h"

namespace holdfast { inline namespace v0_2 {

using internal::Housekeeper;
using internal::RetentionPlanner;
using internal::RunDirectory;

struct CheckpointStore::State {
  FileSystem& file_system;
  const StoreOptions options;
  Verifier& verifier;
  Recovery recovery;
  RetentionPlanner planner;
  const OwnerProcess process = {};
  // Declared before those that hold a reference to it, so it is destroyed after them.
  std::unique_ptr<RunDirectory> directory;  // nullptr: it does not exist yet
  AttemptNumber highest_own = 0;            // also of a claim() that has thrown
  // From claim() on.
  internal::BlockReaper reaper;
  std::optional<Attempt> attempt;
  std::optional<Committer> committer;
  std::optional<Housekeeper> housekeeper;
  bool recovered = false;
  std::optional<Selection> selection;  // of the last preflight() or recover()
  // Found by recover(), not yet moved aside.
  std::vector<FileId> damaged;
  // Opened late: an attempt that never writes a line leaves no file.
  std::unique_ptr<LineFile> ledger;
  bool ledger_failed = false;
  bool failed = false;            // the last commit or state write did
  std::string retention_failure;  // the last one, as apply_retention_told_once() threw it

  State(FileSystem& files, const Clock& clock, StoreOptions given, Verifier& asked)
      : file_system(files),
        options(std::move(given)),
        verifier(asked),
        recovery(options, verifier),
        planner(verifier, clock, options.keep) {}

  RunDirectory* look_up() {
    if (!directory) directory = RunDirectory::open(file_system, options.directory);
    return directory.get();
  }
  // Plans as if the newest checkpoint that verifies had been acknowledged just now.
  RetentionPlanner::Plan plan() {
    if (!selection->newest) return {};
    // This attempt's history is that of the newest checkpoint, which it would continue.
    const CheckpointInfo& newest = *selection->newest;
    Lineage lineage{.own = attempt ? attempt->number() : 0, .ancestry = newest.ancestry};
    lineage.ancestry[newest.attempt] = newest.step;
    // Retention needs two trusted files before it deletes anything (rule 4).
    planner.verified(newest);
    planner.verify_newest(directory->run(), lineage);
    return planner.plan(directory->run(), lineage, {.attempt = newest.attempt, .step = newest.step});
  }
  RetentionPlanner::Plan plan_after_commit() {
    // The highest identifier is the newest: recovery orders in the same way.
    const CheckpointInfo& newest = committer->acknowledged().rbegin()->second;
    // Not this attempt's number: a mirror commits copies of several lives, and one may have gone back.
    const Lineage lineage{.own = newest.attempt, .ancestry = newest.ancestry};
    return planner.plan(directory->run(), lineage, {.attempt = newest.attempt, .step = newest.step});
  }
  // A copy may come from another history than the newest checkpoint here.
  bool grew_from_start(const CommitRequest& request) const {
    if (!selection->newest) return false;
    const AttemptNumber own = request.copy_of ? request.copy_of->attempt : attempt->number();
    const FileId start{.attempt = selection->newest->attempt, .step = selection->newest->step};
    return Lineage{.own = own, .ancestry = request.ancestry}.contains(start);
  }
  // True if it deleted something.
  bool make_room(const CommitRequest& request) {
    const bool acknowledged = !committer->acknowledged().empty();
    // An older start, chosen by the user, proves nothing about the files that a save would make superfluous.
    const bool chosen = options.start.given() && !selection->has_grown;
    if (!options.makes_room || !directory->sound() || (chosen && !acknowledged)) return false;
    if (!acknowledged && !grew_from_start(request)) return false;
    try {
      const RetentionPlanner::Plan plan = acknowledged ? plan_after_commit() : this->plan();
      if (plan.go.empty()) return false;
      log_info("the volume is full: checkpoints that no policy keeps are deleted before the next try ({})",
               plan.go.size());
      housekeeper->carry_out(plan.go);
    } catch (const IoError& error) {
      log_debug("making room: {}", what_of(error));
    }
    reaper.drain();
    return true;
  }
  CheckpointInfo commit(const CommitRequest& request) {
    bool told = false;
    CommitRequest first = request;
    if (request.opened) {
      first.opened = [&](const std::string& name) {
        told = true;
        request.opened(name);
      };
    }
    try {
      return committer->commit(first);
    } catch (const IoError& error) {
      // Other processes that were told a name (rule 13) do not hear of a second file.
      if (!internal::no_room(error) || told || !make_room(request)) throw;
    }
    return committer->commit(request);
  }
  void open_again(Attempt& claim) {
    auto again = RunDirectory::open(file_system, options.directory);
    // Another volume may be there by now, or none.
    if (!again || again->attempts() == nullptr || !claim.lies_in(*again->attempts()))
      throw IoError("open", directory->path_of(kAttemptsDirectory), ENOENT, "is its volume mounted?");
    if (!options.mount.empty()) check_on_mount(file_system, again->run(), options.mount);
    *directory = std::move(*again);  // the same object: others refer to it
    committer->doubt_names();
    ledger.reset();
    failed = false;
  }
  // Work that makes names durable. After a failure the old descriptors may be useless: a failed fsync is
  // remembered, and a volume that was away lies behind new ones.
  template <class Work>
  void on_volume(const Work& work) {
    try {
      if (failed) open_again(*attempt);
    } catch (const IoError&) {
      // Somebody may have moved the directory; a descriptor that is sound still finds it.
      if (!directory->sound()) throw;
    }
    failed = true;
    work();
    failed = false;
  }
  Attempt& claimed(const char* call) {
    if (!attempt) throw Error(std::string(call) + " before claim()");
    return *attempt;
  }
};

CheckpointStore::CheckpointStore(FileSystem& file_system, Clock& clock, StoreOptions options,
                                 Verifier& verifier) {
  options.keep.check();
  // Checked before any file is touched, so that a wrong option costs nothing.
  if (options.start.step && options.start.file) {
    throw UsageError("a starting point is a step or a file, not both");
  }
  state_ = std::make_unique<State>(file_system, clock, std::move(options), verifier);
}

CheckpointStore::~CheckpointStore() {
  // In a forked child: files and threads are the parent's.
  if (!state_->process.is_this_one()) leave_to_parent(state_);
}

Selection CheckpointStore::preflight() {
  // Opens it anew each time: a start that waits may see the directory appear, or a volume mounted over it.
  auto directory = RunDirectory::open(state_->file_system, state_->options.directory);
  if (!directory) {
    const StartingPoint& point = state_->options.start;
    if (!point.step && !point.file) return {};
    throw RefusedError(state_->options.directory.native() +
                       " does not exist: there is nothing to resume from");
  }
  // Before the first read: content that strangers can write must not even be parsed.
  if (state_->options.only_ours) internal::require_trusted(*directory);
  state_->selection = state_->recovery.select(directory->run(), directory->attempts());
  return *state_->selection;
}

AttemptNumber CheckpointStore::claim(const std::string& by, AttemptNumber only, AttemptNumber least) {
  State& s = *state_;
  // A second claim would fence off this very process.
  if (s.attempt) throw Error("claim() twice");
  s.directory = RunDirectory::make(s.file_system, s.options.directory);
  // After make(): if the volume is gone by now, the directory was created below the mount point.
  if (!s.options.mount.empty()) check_on_mount(s.file_system, s.directory->run(), s.options.mount);
  if (s.options.only_ours) internal::require_trusted(*s.directory);
  s.attempt.emplace(*s.directory, s.highest_own, by, only, least);
  s.committer.emplace(*s.directory, *s.attempt, s.verifier, s.reaper, s.options.read_back);
  s.housekeeper.emplace(*s.directory, *s.attempt, s.reaper);
  return s.attempt->number();
}

AttemptNumber CheckpointStore::claim_further(const std::string& by, AttemptNumber only, AttemptNumber least) {
  return state_->claimed("claim_further()").claim_further(by, only, least);
}

AttemptNumber CheckpointStore::highest_own() const { return state_->highest_own; }

Selection CheckpointStore::recover() {
  State& s = *state_;
  Attempt& attempt = s.claimed("recover()");  // without a claim there is no directory
  // The sweep precedes the list: from then on no older attempt can add a file behind this attempt's back.
  internal::sweep_temporaries(*s.directory, attempt, s.reaper);
  Selection selection = s.recovery.select(s.directory->run(), s.directory->attempts());
  // The verification may have taken minutes, and a newer claim may have come meanwhile.
  // Throws, before the caller believes a selection that a successor may be deleting.
  s.attempt->check_not_superseded();
  s.damaged = s.recovery.damaged();
  if (selection.newest) {
    const CheckpointInfo& start = *selection.newest;
    // A start from a file with another name (`--resume-from FILE`) is outside retention.
    if (parse_checkpoint_name(start.name)) s.planner.verified(start);
  }
  s.recovered = true;
  s.selection = selection;
  // Last: old attempts' files may only go when this attempt has its starting point.
  internal::forget_old_attempts(*s.directory, *s.attempt, s.options.attempts_kept);
  return selection;
}

std::string CheckpointStore::set_aside(FileId id, bool found_damaged) {
  State& s = *state_;
  s.claimed("set_aside()");
  Directory& run = s.directory->run();
  const std::string name = checkpoint_name(id);
  // Another process may have moved it since the caller looked.
  if (!run.status(name)) return {};
  check_claim();
  const bool damaged = found_damaged || std::find(s.damaged.begin(), s.damaged.end(), id) != s.damaged.end();
  std::string aside;
  if (!damaged) {
    // Not .damaged: of these only two are kept.
    for (std::uint64_t nth = 2; aside.empty(); ++nth) {
      if (run.rename_new(name, damaged_name(id, nth))) aside = damaged_name(id, nth);
    }
  } else if (run.rename_new(name, damaged_name(id))) {
    aside = damaged_name(id);
  } else {
    run.unlink(name);  // one of that name is enough to look into the damage
  }
  // A good copy may get that name now.
  std::erase(s.damaged, id);
  s.directory->sync();
  return aside;
}

AttemptNumber CheckpointStore::attempt() const { return state_->attempt ? state_->attempt->number() : 0; }

std::unique_ptr<File> CheckpointStore::open(const CheckpointInfo& checkpoint) {
  RunDirectory* directory = state_->look_up();
  return directory != nullptr ? directory->run().open(checkpoint.name, OpenMode::read) : nullptr;
}

CheckpointInfo CheckpointStore::commit(const CommitRequest& request) {
  State& s = *state_;
  // Without the sweep an older attempt could still rename a file into the run directory (rule 6).
  if (!s.recovered) throw Error("commit() before recover()");
  CheckpointInfo checkpoint;
  s.on_volume([&] { checkpoint = s.commit(request); });
  s.planner.wrote(checkpoint);
  return checkpoint;
}

void CheckpointStore::trial_commit() {
  State& s = *state_;
  if (!s.recovered) throw Error("trial_commit() before recover()");
  s.committer->trial_commit(s.selection->newest.has_value());
}

bool CheckpointStore::holds(std::int64_t step) const {
  return state_->committer &&
         state_->committer->acknowledged().contains({.attempt = attempt(), .step = step});
}

void CheckpointStore::apply_retention() {
  State& s = *state_;
  // Rule 4: until this process has made a newer file durable, nothing may go.
  if (!s.committer || s.committer->acknowledged().empty()) return;
  if (!s.directory->sound()) return;  // a directory whose fsync failed may not show what is durable
  internal::FirstFailure failure;
  // Rule 5: only after an acknowledgement, when a newer good file is durable.
  if (!s.damaged.empty()) failure.run([&] { s.housekeeper->move_damaged(s.damaged); });
  // Also if a damaged file could not be moved: the deletions make room for the next save.
  failure.run([&] { s.housekeeper->carry_out(s.plan_after_commit().go); });
  failure.rethrow();
}

void CheckpointStore::apply_retention_told_once() {
  std::string& told = state_->retention_failure;
  try {
    apply_retention();
    told.clear();
  } catch (const IoError& error) {
    if (std::exchange(told, error.what()) != error.what()) throw;
  }
}

void CheckpointStore::apply_retention_at_end() {
  if (!state_->committer) return;
  const auto& acknowledged = state_->committer->acknowledged();
  // Otherwise the newest finite file is verified first.
  if (!acknowledged.empty() && acknowledged.rbegin()->second.finite) apply_retention_told_once();
}

RetentionReport CheckpointStore::plan_retention() {
  State& s = *state_;
  if (!s.selection) throw Error("plan_retention() before preflight() or recover()");
  RunDirectory* const directory = s.look_up();
  if (directory == nullptr) return {};
  return internal::report_of(directory->run(), attempt(), s.plan(), *s.selection);
}

RetentionReport CheckpointStore::prune() {
  State& s = *state_;
  if (!s.recovered) throw Error("prune() before recover()");
  const RetentionPlanner::Plan plan = s.plan();
  // Before the deletions, because they take away the sizes that the report tells.
  RetentionReport report = internal::report_of(s.directory->run(), attempt(), plan, *s.selection);
  s.housekeeper->carry_out(plan.go);
  return report;
}

void CheckpointStore::check_claim() { state_->claimed("check_claim()").check_not_superseded(); }

void CheckpointStore::open_again() { state_->open_again(state_->claimed("open_again()")); }

void CheckpointStore::sync_names() {
  state_->claimed("sync_names()");
  state_->directory->sync();
}

void CheckpointStore::write_run_state(const RunState& state) {
  State& s = *state_;
  Attempt& attempt = s.claimed("write_run_state()");
  RunState own = state;
  own.attempt = attempt.number();
  // A prune repeats its predecessor's state, and that names the machine that trained.
  if (own.host.empty()) own.host = host_name();
  if (own.boot_id.empty()) own.boot_id = boot_id();
  s.on_volume([&] { internal::write_state(*s.directory, attempt, own); });
}

void CheckpointStore::write_ledger(const std::string& json_line) {
  if (!append_ledger(json_line)) throw Error("it cannot be written");
}

bool CheckpointStore::append_ledger(const std::string& json_line) {
  State& s = *state_;
  const Attempt& attempt = s.claimed("append_ledger()");
  // Nothing more is written into a run that another attempt owns.
  // The flag is enough: a ledger is this attempt's own file (rule 10), and a line is not worth a listing of
  // the claims.
  if (attempt.superseded()) return true;
  try {
    if (!s.ledger) {
      const std::string name = ledger_name(attempt.number());
      s.ledger = std::make_unique<LineFile>(s.directory->run().open(name, OpenMode::append));
    }
    s.ledger->append(json_line);
    return true;
  } catch (const std::exception& error) {
    s.ledger.reset();  // the next line opens it anew, which ends a torn line
    // Once for each process: a full disk would otherwise log a line for every ledger line.
    if (!std::exchange(s.ledger_failed, true)) {
      log_warning("the ledger may have gaps from here on: {}; checkpoints are not affected", what_of(error));
    }
    return false;
  }
}

std::vector<CheckpointInfo> CheckpointStore::list() {
  std::vector<CheckpointInfo> all;
  RunDirectory* directory = state_->look_up();
  if (directory == nullptr) return all;
  for (const Candidate& candidate : candidates_in(directory->run())) {
    const auto status = directory->run().status(candidate.name);
    // Links and directories are no checkpoints, whatever their name says.
    if (!status || status->kind != FileKind::regular) continue;
    all.push_back({.step = candidate.id.step,
                   .attempt = candidate.id.attempt,
                   .name = candidate.name,
                   .bytes = status->size,
                   .ancestry = {},
                   .finite = true});
  }
  return all;
}

}}  // namespace holdfast::v0_2
