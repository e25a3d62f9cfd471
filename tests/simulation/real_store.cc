#include "real_store.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "simulated_run.h"

namespace holdfast::simulation {

using run::Outcome;
using test::Life;
using test::MemoryFileSystem;
using test::Op;
using test::Operation;

namespace {

// Mutating calls, about: of a commit; with its state, ledger and retention.
constexpr std::uint64_t kCallsOfACommit = 9;
constexpr std::uint64_t kCallsOfASave = 20;
constexpr char kRank[] = "rank";

// 52 bits of a content are a metric's value, exactly.
Metrics to_metrics(const std::vector<std::uint64_t>& content) {
  Metrics metrics;
  for (std::size_t r = 0; r < content.size(); ++r) {
    metrics[kRank][static_cast<std::int64_t>(r)] = static_cast<double>(content[r] >> 12);
  }
  return metrics;
}

// "/volume/run/tmp-a0001-step-60-1": a checkpoint before its commit.
bool is_temporary(const std::string& path) {
  return path.starts_with(test::in_run("tmp-").native()) && path.find("-step-") != std::string::npos;
}

std::optional<FileId> newest_of(const Selection& found) {
  if (!found.newest) return std::nullopt;
  return FileId{.attempt = found.newest->attempt, .step = found.newest->step};
}

StoreOptions options_of(std::uint64_t chance) {
  return {.keep = KeepLast{2 + static_cast<int>(chance % 3)}, .attempts_kept = 1 + chance / 3 % 4};
}

}  // namespace

RealStore::RealStore(std::uint64_t seed, Check check) : chance_(seed), check_(std::move(check)) {}

std::uint64_t RealStore::draw(std::uint64_t below) {
  chance_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = chance_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % below;
}

// What was not synced is lost in part.
MemoryFileSystem RealStore::after_power_cut() {
  std::set<std::string> kept;
  for (std::size_t known = SIZE_MAX; known != kept.size();) {
    known = kept.size();
    for (const std::string& thing : disk_.unsynced(kept)) {
      if (draw(2) == 0) kept.insert(thing);
    }
  }
  return disk_.crash_keeping(kept);
}

std::set<FileId> RealStore::good_files() const {
  std::set<FileId> good;
  if (!disk_.exists(test::kRun)) return good;
  for (const std::string& name : disk_.names(test::kRun)) {
    const auto id = parse_checkpoint_name(name);
    if (id && acknowledged_.count(*id) > 0 && damaged_.count(*id) == 0) good.insert(*id);
  }
  return good;
}

std::optional<RealStore::Image> RealStore::start(bool damages) {
  life_.reset();
  if (draw(2) == 0) disk_ = after_power_cut();  // after the process, its machine has gone
  const auto run = disk_.open_directory(test::kRun, false);
  check_state(run ? read_run_state(*run) : std::nullopt);
  const std::set<FileId> good = good_files();
  const bool two = damages && good.size() >= 2 && *good.rbegin() == newest_;
  std::string bad_sector;
  if (two && draw(4) == 0) {
    damage_newest(good);
  } else if (two && draw(4) == 0) {
    bad_sector = checkpoint_name(*newest_);
    set_apart_.insert(*newest_);
    newest_ = *std::next(good.rbegin());
  } else if (damages && draw(4) == 0) {
    start_in_bad_weather();
  }
  if (!good.empty() && draw(8) == 0) start_where_nothing_is_readable(good);

  const auto before = disk_.exists(test::kRun) ? disk_.names(test::kRun) : std::vector<std::string>{};
  files_.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::read || bad_sector.empty() || !operation.path.ends_with("/" + bad_sector))
      return;
    throw IoError("read", operation.path, EIO);
  });
  life_ = std::make_unique<Life>(files_, options_of(draw(12)));
  if (draw(3) == 0) {
    life_->verifier.answer = [this](const auto&) -> std::optional<Verdict> {
      life_->verifier.answer = {};
      return Verdict{.kind = Verdict::Kind::damaged, .reason = "a bad look at a good device"};
    };
  }
  Selection found;
  try {
    found = life_->start();
    life_->verifier.answer = {};
    record({.phase = RunPhase::starting, .step = life_->step});
  } catch (const std::exception& error) {
    check_(Promise::store_starts, false, error.what());
  }
  files_.set_hook({});
  check_(Promise::store_starts, life_->store.attempt() > claimed_, "an attempt number was taken twice");
  claimed_ = life_->store.attempt();
  rivals_step_.reset();
  failing_ = directory_failed_ = false;
  in_doubt_.clear();
  for (const std::string& name : disk_.names(test::kRun)) {
    check_(Promise::store_starts, !name.starts_with("tmp-"), "a temporary file of an older attempt stays");
  }
  for (const std::string& name : before) {
    check_(Promise::store_starts, !parse_checkpoint_name(name) || disk_.exists(test::in_run(name)),
           "a start moves a file before its first commit");
  }
  return chosen(found);
}

// One call fails, and the volume is all right again: the start ends, or it finds what it should.
void RealStore::start_in_bad_weather() {
  constexpr int kErrors[] = {ENOTCONN, ESTALE, ENOMEM, EACCES};
  const Op what = draw(2) == 0 ? Op::read : Op::open_read;
  const int nth = 1 + static_cast<int>(draw(8));
  files_.fail(what, nth, kErrors[draw(4)]);
  Life life(files_, options_of(draw(12)));
  try {
    check_(Promise::store_keeps_what_it_acknowledged, newest_of(life.start()) >= newest_,
           "a call that failed at a start cost a checkpoint");
  } catch (const Error&) {
  }
  files_.clear_faults();
  claimed_ = std::max(claimed_, life.store.attempt());
  state_.reset();
}

// On a copy of the disk: a start is refused, and changes nothing.
void RealStore::start_where_nothing_is_readable(const std::set<FileId>& good) {
  MemoryFileSystem disk = disk_.copy();
  const bool newer_format = draw(2) == 0;
  if (newer_format) {
    test::put_toy(disk, {.version = 2, .step = good.rbegin()->step, .attempt = claimed_ + 1});
  } else {
    for (const std::string& name : disk.names(test::kRun)) {
      const auto id = parse_checkpoint_name(name);
      if (id && damaged_.count(*id) == 0) test::rot(disk, name);
    }
  }
  const auto names = disk.names(test::kRun);
  Life life(disk);
  bool refused = false;
  try {
    life.start();
  } catch (const Error&) {
    refused = true;
  }
  check_(
      Promise::store_starts, refused && disk.names(test::kRun) == names,
      newer_format ? "a start skips a file of a newer format" : "a start begins anew where checkpoints are");
}

std::optional<RealStore::Image> RealStore::chosen(const Selection& found) {
  const std::optional<FileId> newest = newest_of(found);
  const bool kept = newest >= newest_;  // none is less than any
  check_(Promise::store_keeps_what_it_acknowledged, kept, "an acknowledged checkpoint is lost");
  newest_ = newest;
  if (!newest) return std::nullopt;
  const auto wrote = written_.find(*newest);
  const bool same = wrote != written_.end() && found.newest->metrics == to_metrics(wrote->second);
  check_(Promise::store_reads_what_was_written, same, "a start reads what nobody wrote");
  check_(Promise::store_reads_what_was_written, damaged_.count(*newest) == 0, "a start reads a damaged file");
  acknowledged_.insert(*newest);
  // What the run goes on from has grown from these, so retention may delete them.
  // Not by Lineage::contains(), which is on trial here.
  std::erase_if(set_apart_, [&](const FileId& id) {
    const auto until = life_->ancestry.find(id.attempt);
    return until != life_->ancestry.end() && id.step <= until->second;
  });
  return Image{newest->step, wrote->second};
}

void RealStore::check_state(const std::optional<RunState>& state) const {
  if (!state_) return;
  const bool same = state && state->attempt == state_->attempt && state->phase == state_->phase &&
                    state->durable_step == state_->durable_step && state->exit_code == state_->exit_code;
  check_(Promise::store_states_are_true, same, "a run state that was recorded is not there");
}

void RealStore::damage_newest(const std::set<FileId>& good) {
  test::rot(disk_, checkpoint_name(*newest_));
  damaged_.insert(*newest_);
  newest_ = *std::next(good.rbegin());
}

void RealStore::record(RunState state) {
  state_.reset();  // a power cut may leave this one or the one before
  life_->store.write_run_state(state);
  state.attempt = life_->store.attempt();
  state_ = std::move(state);
}

// As the writer does it.
void RealStore::save(const Image& image) {
  const FileId id{.attempt = life_->store.attempt(), .step = image.step};
  written_[id] = image.content;
  life_->metrics = to_metrics(image.content);
  const CheckpointInfo saved = life_->save(image.step);
  acknowledged_.insert(id);
  newest_ = std::max(newest_.value_or(id), id);
  record(
      {.phase = RunPhase::running, .step = image.step, .durable_step = image.step, .checkpoint = saved.name});
  life_->store.append_ledger(R"({"step":)" + std::to_string(image.step) + "}");
  life_->store.apply_retention();
  for (const FileId& apart : set_apart_) {
    check_(Promise::store_keeps_what_it_acknowledged, disk_.exists(test::in_run(checkpoint_name(apart))),
           "retention deletes a file of another lineage");
  }
}

Outcome RealStore::write(const Image& image, bool fails, bool superseded) {
  if (life_->store.holds(image.step)) return Outcome::durable;
  const std::string name = checkpoint_name({.attempt = life_->store.attempt(), .step = image.step});
  const bool late = rivals_step_.has_value();
  files_.clear_log();
  bool other_bytes = false;
  std::uint64_t calls = draw(kCallsOfACommit + 1);
  std::function<void(const Operation&)> hook;
  if (fails && draw(4) == 0) {
    hook = [&](const Operation& operation) {
      if (operation.kind != Op::close || !is_temporary(operation.path) || other_bytes) return;
      disk_.flip_bit(operation.path, draw(test::kToyBlock));
      other_bytes = true;
    };
  } else if (fails) {
    plan_failure();
  } else if (superseded && !late) {
    hook = [&](const Operation& operation) {
      if (!operation.mutating || calls-- != 0) return;
      start_rival();
      rival_before_rename_ = operation.kind != Op::rename_new && !disk_.exists(test::in_run(name));
      rival_before_end_ = !life_->store.holds(image.step);
    };
  }
  // An earlier try of this write may have made the name, and failed after that.
  rival_before_rename_ = late && !disk_.exists(test::in_run(name));
  rival_before_end_ = late;
  files_.set_hook(hook);
  bool by_rival = false;
  std::string error;
  try {
    save(image);
  } catch (const SupersededError&) {
    by_rival = true;
  } catch (const Error& what) {
    error = what.what();
  }
  files_.set_hook({});
  files_.clear_faults();
  const bool durable = life_->store.holds(image.step);
  check_(Promise::store_obeys_newer_claims, !durable || !rival_before_end_,
         "a commit succeeds after a newer claim");
  check_(Promise::store_obeys_newer_claims, !rival_before_rename_ || !disk_.exists(test::in_run(name)),
         "a file gets its name after a newer claim");
  check_(Promise::store_obeys_newer_claims, !by_rival || rivals_step_, "superseded, and no attempt is newer");
  check_(Promise::store_reads_what_was_written, !durable || !other_bytes,
         "a device keeps other bytes, and a commit succeeds");
  check_calls(durable, name);
  failing_ = failing_ || fails;  // it may refuse all later ones
  check_(Promise::store_commits, error.empty() || failing_, error.c_str());
  if (superseded && !rivals_step_) start_rival();
  return durable ? Outcome::durable : by_rival ? Outcome::superseded : Outcome::failed;
}

void RealStore::plan_failure() {
  constexpr int kErrors[] = {EIO, ENOSPC, ENOTCONN};
  constexpr Op kOps[] = {Op::write, Op::sync_file, Op::close, Op::rename_new, Op::sync_directory};
  const test::FaultOptions options{.short_write = draw(2) == 0, .after = draw(3) == 0};
  const int code = kErrors[draw(3)];
  if (draw(2) == 0) return files_.fail_mutation(1 + static_cast<int>(draw(kCallsOfACommit)), code, options);
  files_.fail(kOps[draw(std::size(kOps))], 1, code, options);
}

// Of the last write.
void RealStore::check_calls(bool durable, const std::string& name) {
  std::set<std::string> not_synced;
  bool failed = false;
  bool replaced = false;
  const bool in_doubt = in_doubt_.count(name) != 0;
  for (const Operation& operation : files_.log()) {
    const bool checkpoint = is_temporary(operation.path);
    if (checkpoint && operation.kind == Op::sync_file) {
      check_(Promise::store_obeys_failures, not_synced.count(operation.path) == 0,
             "an fsync that failed is tried again");
      if (operation.failed) not_synced.insert(operation.path);
    }
    if (operation.kind == Op::rename_over) {
      // After a failure the attempt's own name may be in doubt.
      check_(Promise::store_obeys_failures,
             !operation.to.starts_with("step-") || (failing_ && operation.to == name),
             "a rename could replace a checkpoint");
    }
    if (!operation.failed) {
      replaced = replaced || (operation.kind == Op::rename_over && operation.to == name);
      if (operation.kind == Op::open_directory && operation.path == test::kRun) directory_failed_ = false;
      continue;
    }
    failed = failed || (checkpoint && (operation.kind == Op::write || operation.kind == Op::sync_file ||
                                       operation.kind == Op::close));
    if (operation.kind != Op::sync_directory || operation.path != test::kRun) continue;
    directory_failed_ = true;
    if (disk_.exists(test::in_run(name))) in_doubt_.insert(name);
  }
  check_(Promise::store_obeys_failures, !durable || !directory_failed_,
         "a commit after a failed fsync of the directory, which nobody opened anew");
  check_(Promise::store_obeys_failures, !durable || !in_doubt || replaced,
         "a commit believes a name that a failed fsync of the directory could not write");
  check_(Promise::store_obeys_failures, !durable || !failed,
         "a commit succeeds although a call on its file failed");
}

// A newer attempt, which dies before its first save.
void RealStore::start_rival() {
  Life rival(disk_);
  const Selection found = rival.start();
  claimed_ = rival.store.attempt();
  rivals_step_ = found.newest ? found.newest->step : -1;
  state_.reset();
}

void RealStore::die(const std::optional<Image>& in_flight) {
  if (!in_flight || rivals_step_ || life_->store.holds(in_flight->step)) return;
  struct Left {
    MemoryFileSystem disk;
    std::set<FileId> acknowledged;
    std::optional<FileId> newest;
    std::optional<RunState> state;
  };
  std::optional<Left> left;
  const auto take = [&] {
    left = Left{draw(2) == 0 ? disk_.copy() : after_power_cut(), acknowledged_, newest_, state_};
  };
  std::uint64_t calls = draw(kCallsOfASave);
  files_.set_hook([&](const Operation& operation) {
    if (operation.mutating && calls-- == 0) take();
  });
  try {
    save(*in_flight);
  } catch (const Error&) {  // of a store that refuses all since an earlier failure
  }
  files_.set_hook({});
  if (!left) take();
  disk_ = std::move(left->disk);
  acknowledged_ = std::move(left->acknowledged);
  newest_ = left->newest;
  state_ = std::move(left->state);
}

void RealStore::end(int code, run::Step step) {
  if (rivals_step_ || failing_) return;
  const RunPhase phase = code == 0    ? RunPhase::complete
                         : code == 75 ? RunPhase::interrupted
                                      : RunPhase::failed;
  record({.phase = phase, .step = step, .durable_step = newest_ ? newest_->step : -1, .exit_code = code});
}

}  // namespace holdfast::simulation
