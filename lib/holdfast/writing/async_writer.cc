#include "holdfast/writing/async_writer.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/writing/internal/file_commit.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 {

AsyncWriter::AsyncWriter(CheckpointStore& store, Clock& clock, LossRing& losses, RunState run,
                         AsyncWriterOptions options)
    : store_(store),
      clock_(clock),
      losses_(losses),
      run_(std::move(run)),
      options_(options),
      last_look_(clock.now()),
      files_(std::make_unique<internal::FileCommit>(store, clock, options_, limit_lifted_)) {
  last_.checkpoint.reserve(SaveHandle::Shared::kLongestName);
  try {
    const BlockSignals block;  // on a FUSE mount a handler would end an fsync with EINTR, a failure
    thread_ = std::thread([this] { this->run(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("cannot start the thread that writes checkpoints: ") + error.what() +
                    "; raise the limit of processes (ulimit -u) or of memory (ulimit -v)",
                ExitCode::io_failed);
  }
}

AsyncWriter::~AsyncWriter() { stop(); }

SaveHandle AsyncWriter::submit(WriteRequest request) {
  auto handle = std::exchange(request.save, nullptr);
  if (!handle) {
    handle = std::make_shared<SaveHandle::Shared>(request.snapshot->step, SaveStatus::staged, clock_.now());
  }
  std::optional<Job> job(Job{std::move(request), handle});
  std::optional<Job> overtaken;
  std::string refused;
  {
    const MutexLock lock(mutex_);
    if (superseded()) {
      refused = superseded_reason_;
    } else if (stopping_) {
      refused = "the writer has been stopped";
    } else {
      // One save waits at most. The newer one loses less work than the one that it replaces.
      overtaken = std::exchange(waiting_, std::exchange(job, std::nullopt));
      note_activity();
    }
  }
  // Outside the lock, because settle() calls the program's on_save.
  if (job) {
    not_begun(*job, refused);
    tell_end(*handle, superseded() ? SaveListener::Outcome::superseded : SaveListener::Outcome::failed);
    handle->settle(SaveStatus::failed, refused);
    if (options_.listener != nullptr) options_.listener->writer_rests();
  } else {
    wake_.notify_one();
  }
  if (overtaken) {
    not_begun(*overtaken, "a newer save took its place");
    overtaken->handle->settle(SaveStatus::overtaken, {});
  }
  return SaveHandle(handle);
}

std::optional<Duration> AsyncWriter::writing_for() const noexcept {
  const MutexLock lock(mutex_);
  if (!writing_since_) return std::nullopt;
  return clock_.now() - *writing_since_;
}

void AsyncWriter::note_activity() noexcept {
  // Odd while a save waits or is written. So a change between two looks shows even a short save.
  const std::uint64_t now = activity_.load(std::memory_order_relaxed);
  const bool active = writing_ || waiting_;
  // Relaxed: a step that sees the change late looks one step later.
  if ((now % 2 != 0) != active) activity_.store(now + 1, std::memory_order_relaxed);
}

bool AsyncWriter::wait_idle(std::chrono::nanoseconds limit) const {
  const MutexLock lock(mutex_);
  return idle_.wait_for(mutex_, limit, [&]() HOLDFAST_REQUIRES(mutex_) { return !writing_ && !waiting_; });
}

void AsyncWriter::stop() {
  // In a child of fork() the thread does not exist, and a lock of it may be held for ever.
  if (!process_.is_this_one()) {
    abandon(thread_);
    abandon(wake_);
    abandon(idle_);
    return;
  }
  ask_to_stop();
  if (thread_.joinable()) thread_.join();
}

bool AsyncWriter::stop_within(std::chrono::nanoseconds limit) {
  if (process_.is_this_one()) {
    ask_to_stop();
    const MutexLock lock(mutex_);
    if (!idle_.wait_for(mutex_, limit, [this]() HOLDFAST_REQUIRES(mutex_) { return over_; })) return false;
  }
  stop();
  return true;
}

void AsyncWriter::ask_to_stop() {
  // The process waits for the write in flight now, so it gets no speed limit.
  lift_limit();
  std::optional<Job> dropped;
  bool rests = false;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped = std::exchange(waiting_, std::nullopt);
    rests = !writing_;
    note_activity();
  }
  wake_.notify_one();
  if (dropped) {
    not_begun(*dropped, "the run ended");
    tell_end(*dropped->handle, SaveListener::Outcome::failed);
    if (rests && options_.listener != nullptr) options_.listener->writer_rests();
    dropped->handle->settle(SaveStatus::failed, "dropped: the run ended before it was written");
    idle_.notify_all();
  }
}

std::optional<std::string> AsyncWriter::failure() const noexcept {
  const MutexLock lock(mutex_);
  if (!failures_.state()) return std::nullopt;
  const std::string& text = failures_.text();
  return text_or_out_of_memory([&] { return text; });
}

std::optional<FailureStreak::State> AsyncWriter::failures() const noexcept {
  const MutexLock lock(mutex_);
  return failures_.state();
}

std::string AsyncWriter::superseded_reason() const noexcept {
  return text_or_out_of_memory([this] {
    const MutexLock lock(mutex_);
    return superseded_reason_;
  });
}

AsyncWriter::Acknowledged AsyncWriter::last_acknowledged() const {
  const MutexLock lock(mutex_);
  return last_;
}

std::int64_t AsyncWriter::last_step() const noexcept {
  const MutexLock lock(mutex_);
  return last_.step;
}

void AsyncWriter::run() noexcept {
  const InRole role(thread_role_);
  MutexLock lock(mutex_);
  while (true) {
    // Wakes up for the ledger even if nothing is saved.
    wake_.wait_for(mutex_, options_.ledger_interval,
                   [&]() HOLDFAST_REQUIRES(mutex_) { return stopping_ || waiting_; });
    if (waiting_) {
      Job job = *std::exchange(waiting_, std::nullopt);
      writing_ = true;
      writing_since_ = clock_.now();
      lock.unlock();
      write(std::move(job));
      lock.lock();
      writing_ = false;
      writing_since_.reset();
      note_activity();
      idle_.notify_all();
      lock.unlock();
      if (options_.listener != nullptr) options_.listener->writer_rests();
      lock.lock();
    } else if (stopping_) {
      break;
    } else {
      lock.unlock();
      look_around();
      lock.lock();
    }
  }
  lock.unlock();
  flush_ledger();  // the lines that came after the last save
  lock.lock();
  over_ = true;
  idle_.notify_all();
}

// Every failure ends in the handle, even one for lack of memory: an exception would end the training.
void AsyncWriter::write(Job job) noexcept {
  if (superseded()) {
    const std::string reason = superseded_reason();
    not_begun(job, reason);
    tell_end(*job.handle, SaveListener::Outcome::superseded);
    job.handle->settle(SaveStatus::failed, reason);
    return;
  }
  std::optional<CheckpointInfo> checkpoint;
  try {
    checkpoint = files_->commit(job.request, others_failed(), *job.handle);
  } catch (const SupersededError& error) {
    supersede(error.what());
    job.request = {};
    tell_end(*job.handle, SaveListener::Outcome::superseded);
    job.handle->settle(SaveStatus::failed, error.what());
    return;
  } catch (const OtherRankError& error) {
    failed_by_other_rank(error, job);
  } catch (const std::exception& error) {
    failed(job, what_of(error), holdfast::may_pass(error));
  } catch (...) {
    failed(job, "an exception of unknown type", false);
  }
  if (checkpoint) {
    acknowledged(job, *checkpoint);
    keep_house(*checkpoint, *job.handle);
  }
  flush_ledger();
}

void AsyncWriter::tell_end(const SaveHandle::Shared& save, SaveListener::Outcome outcome) const noexcept {
  if (options_.listener != nullptr) options_.listener->save_ends(save, outcome);
}

// The other ranks wait for the first word about this save, so it is sent here too.
void AsyncWriter::not_begun(Job& job, std::string_view reason) const noexcept {
  if (job.request.others) {
    job.request.others->decline(text_or_out_of_memory([&] { return std::string(reason); }));
  }
  job.request = {};
}

void AsyncWriter::failed_by_other_rank(const OtherRankError& error, Job& job) noexcept {
  failed_by_other_ranks_.fetch_add(1, std::memory_order_relaxed);
  // The first refusal in a row costs one save: the rank may take part in the next.
  if (error.refused() && !std::exchange(refused_, true)) return failed(job, error.what(), true);
  if (!others_failed_.exchange(true)) {
    job.request.others->log_alone_from_here(error);
    // The measured costs are those of all ranks writing together.
    if (options_.costs != nullptr) {
      options_.costs->scale_commits(job.request.others->writers());
    }
  }
  failed(job, what_of(error), true);
}

void AsyncWriter::acknowledged(Job& job, const CheckpointInfo& checkpoint) noexcept {
  job.request = {};  // first, so that a waiter that sees the durable step finds the image free
  refused_ = false;
  bool recovered = false;
  {
    const MutexLock lock(mutex_);
    recovered = failures_.succeeded();
    failing_.store(false, std::memory_order_relaxed);
    writing_since_.reset();  // from here on only housekeeping follows, which is short compared with a write
    last_.step = checkpoint.step;
    last_.checkpoint.assign(checkpoint.name);  // the constructor reserved the memory
    last_.when = clock_.now();
  }
  tell_end(*job.handle, SaveListener::Outcome::durable);
  job.handle->settle(SaveStatus::durable, checkpoint.name);
  if (recovered) {
    log_info("saving works again: step {} is durable ({})", checkpoint.step, checkpoint.name);
  } else if (log_enabled(LogLevel::debug)) {
    log_debug("step {} is durable ({}): {}", checkpoint.step, checkpoint.name,
              text_or_out_of_memory([&] { return to_text(job.handle->known()); }));
  }
}

void AsyncWriter::failed(Job& job, const char* error, bool may_pass) noexcept {
  const std::string text = text_or_out_of_memory(
      [&] { return "save of step " + std::to_string(job.handle->step) + " failed: " + error; });
  job.request = {};  // first: the report may take its time
  // Before anybody hears of the failure: training must not count its metric as kept.
  job.handle->lost.store(true, std::memory_order_release);
  note_failure(text, may_pass ? FailureKind::may_pass : FailureKind::lasts);
  tell_end(*job.handle, SaveListener::Outcome::failed);
  job.handle->settle(SaveStatus::failed, text);
}

void AsyncWriter::note_failure(const std::string& text, FailureKind kind) noexcept {
  FailureStreak::Line line;
  {
    const MutexLock lock(mutex_);
    line = failures_.failed(text, kind, clock_.now(), last_.step);
    failing_.store(true, std::memory_order_relaxed);
    writing_since_.reset();  // a waiter that sees the failure need not wait for the housekeeping
  }
  log_message(line.level, line.text);
}

bool AsyncWriter::supersede(const char* reason) noexcept {
  std::optional<Job> waiting;
  {
    const MutexLock lock(mutex_);
    if (superseded_reason_.empty()) {
      superseded_reason_ = text_or_out_of_memory([&] { return std::string(reason); });
    }
    superseded_.store(true, std::memory_order_release);
    waiting = std::exchange(waiting_, std::nullopt);
    note_activity();
  }
  if (options_.listener != nullptr) options_.listener->writer_superseded();
  if (waiting) {
    not_begun(*waiting, reason);
    tell_end(*waiting->handle, SaveListener::Outcome::superseded);
    waiting->handle->settle(SaveStatus::failed, reason);
  }
  idle_.notify_all();
  log_warning("{}; this attempt stops and leaves the directory alone", reason);
  return waiting.has_value();
}

// The checkpoint is acknowledged: a failure from here on leaves files behind, but loses no work.
void AsyncWriter::keep_house(const CheckpointInfo& checkpoint, const SaveHandle::Shared& save) noexcept {
  const auto guarded = [&](const auto& work) HOLDFAST_REQUIRES(thread_role_) {
    // The directory belongs to another attempt, so nothing in it may change.
    if (superseded()) return;
    try {
      work();
    } catch (const SupersededError& error) {
      supersede(error.what());
    } catch (const std::exception& error) {
      log_warning("after the save of step {}: {}; the checkpoint itself is durable", checkpoint.step,
                  what_of(error));
    }
  };
  guarded([&] {
    RunState state = run_;
    state.phase = RunPhase::running;
    state.step = checkpoint.step;
    state.durable_step = checkpoint.step;
    state.checkpoint = checkpoint.name;
    state.time = format_utc(clock_.wall_now());
    if (save.keeper) put_figures(state, save.keeper->figures());
    store_.write_run_state(state);
  });
  guarded([&]() HOLDFAST_REQUIRES(thread_role_) {
    const SaveFigures figures = save.known();
    const Duration took = figures.write + figures.commit;
    std::string line = R"({"event":"commit","step":)" + std::to_string(checkpoint.step) + R"(,"ms":)" +
                       std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
                       commit_members(save) + ',' + to_json_members(figures) + "}";
    if (commits_.size() < kMostCommits) commits_.push_back(std::move(line));
    flush_ledger();
  });
  // Runs even if the steps above failed, because it frees the space for the next save.
  guarded([&]() HOLDFAST_REQUIRES(thread_role_) {
    // A run that leaves soon must not wait for deletions; they follow when its end is told.
    if (!leaving_.load(std::memory_order_relaxed)) store_.apply_retention_told_once();
  });
}

std::string AsyncWriter::commit_members(const SaveHandle::Shared& save) const {
  if (options_.ledger == nullptr) return {};
  const Duration waited = save.keeper ? save.keeper->figures().blocked : Duration::zero();
  return options_.ledger->commit_members(save.boundary, waited);
}

// Without this an idle attempt would notice that it is superseded only at its next commit.
void AsyncWriter::look_around() noexcept {
  flush_ledger();
  if (superseded() || clock_.now() - last_look_ < options_.claim_interval) return;
  last_look_ = clock_.now();
  try {
    store_.check_claim();
  } catch (const SupersededError& error) {
    // A save that came while this thread looked is dropped, and no write follows that would tell its end.
    if (supersede(error.what()) && options_.listener != nullptr) options_.listener->writer_rests();
  } catch (const std::exception& error) {
    log_debug("could not look for newer attempts: {}", what_of(error));  // the next commit looks again
  }
}

// What cannot be written stays where it is: a volume that was away for a while costs no line.
void AsyncWriter::flush_ledger() noexcept {
  const auto append = [&](const std::string& line) {
    if (!superseded()) store_.write_ledger(line);
  };
  try {
    if (options_.ledger != nullptr) options_.ledger->drain(append);
    for (; !commits_.empty(); commits_.pop_front()) append(commits_.front());
    losses_.drain(append);
  } catch (const std::exception& error) {
    log_debug("the ledger waits: {}", what_of(error));
  }
}

}}  // namespace holdfast::v0_2
