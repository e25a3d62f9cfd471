#include "holdfast/checkpoint/checkpointer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/interruption/sources.h"
#include "holdfast/io/volume_probe.h"

namespace holdfast { inline namespace v1 {
namespace {

CheckpointerOptions checked(CheckpointerOptions options) {
  if (options.directory.empty()) throw UsageError("no checkpoint directory given");
  options.keep.check();
  if (!options.start.resume_from.empty() && !options.start.init_from.empty()) {
    throw UsageError(
        "resume_from and init_from contradict each other: continue that run, or take its weights");
  }
  if (options.writing.threads < 1 || options.writing.threads > 64) {
    throw UsageError("writer_threads is " + std::to_string(options.writing.threads) + "; 2 to 4 fill a disk");
  }
  if (!(options.writing.write_limit >= 0) || std::isinf(options.writing.write_limit)) {
    throw UsageError("write_limit is " + format_number(options.writing.write_limit) +
                     "; give MB/s such as 200, or 0 for no limit");
  }
  if (options.start.mount_wait < std::chrono::seconds(0)) throw UsageError("mount_wait is negative");
  if (options.notices.term_grace && *options.notices.term_grace <= Duration::zero())
    throw UsageError("term_grace is not positive; without it, it is 25 s, and 10 s in a container");
  if (options.notices.exit_code_interrupted < 0 || options.notices.exit_code_interrupted > 255) {
    throw UsageError("exit_code_interrupted is " + std::to_string(options.notices.exit_code_interrupted) +
                     "; exit codes go from 0 to 255");
  }
  if (options.notices.on_notice == OnNotice::callback && !options.notices.decide) {
    throw UsageError("on_notice is callback, and there is no function to decide");
  }
  if (options.notices.deaf_after <= Duration::zero()) throw UsageError("deaf_after is not positive");
  if (options.notices.blind_after <= Duration::zero()) throw UsageError("blind_after is not positive");
  if (!options.mount.empty()) check_beneath_mount(options.directory, options.mount);
  return options;
}

// What leaves a Checkpointer is an Error: a program prints its text and ends with its code.
template <class Work>
auto or_out_of_memory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError();
  }
}

}  // namespace

Checkpointer::State::State(SnapshotSource& the_source, CheckpointerOptions the_options)
    : options(checked(std::move(the_options))),
      ranks(internal::ranks_of(options.ranks.channel, the_source)),
      source(ranks ? ranks->source() : the_source),
      file_system(options.start.seams.file_system ? *options.start.seams.file_system : FileSystem::real()),
      clock(options.start.seams.clock ? *options.start.seams.clock : Clock::real()),
      ledger(clock),
      constructed(clock.now()),
      monitor(clock),
      verifier(std::max(options.writing.threads, kReadThreads)),
      stager(source, options.writing.second_image ? 2 : 1),
      policy(options.every, clock.now(), 0),
      book(std::make_shared<internal::SaveBook>(clock, options.writing.on_save)),
      time(clock, costs, *book),
      outlook(options.notices, monitor, costs, clock),
      parts{options, source, file_system, clock, monitor, outlook, verifier, stager},
      finder(parts) {
  if (ranks) outlook.add_agreement(Duration::zero());
  check_staging = env_flag(kEnvCheckStaging).value_or(false);
  listen();
  verifier.when_reading([this](const CheckpointIndex& index) {
    std::vector<TensorSpec> tensors;
    tensors.reserve(index.tensors.size());
    for (const IndexedTensor& tensor : index.tensors) tensors.push_back(tensor.spec);
    stager.plan_beside(std::move(tensors), std::max(kDefaultAttributeCapacity, index.attribute_capacity));
  });
  // From here on a signal is heard, also while resume() waits for a volume or reads a large state.
  SourceOptions heard{.signals = options.notices.hear_signals,
                      .term_grace = options.notices.term_grace,
                      .max_wall = options.notices.max_wall,
                      .cloud = options.notices.cloud,
                      .blind_after = options.notices.blind_after};
  if (env_flag(kEnvApproveEnd).value_or(options.notices.approve_end)) {
    heard.azure_approve = [this] { return may_go.load(); };
  }
  if (!options.notices.notice_file.empty()) heard.notice_files.push_back(options.notices.notice_file);
  for (auto& made : make_sources(heard, clock)) monitor.add(std::move(made));
  for (const auto& make : options.notices.sources) {
    if (auto made = make(clock)) monitor.add(std::move(made));
  }
  monitor.start();
}

Checkpointer::State::~State() {
  if (ranks) {
    ranks->settle(SaveStatus::failed, "this rank ended before it heard of it");
    ranks->patience.end_by(clock.now() + internal::kPartingGrace);
  }
  monitor.stop();
  watch->stop();
  if (late_save) late_save->settle(SaveStatus::failed, "dropped: the run ended before it was staged");
}

void Checkpointer::State::require(Phase needed, const char* call) const {
  if (phase == needed || (needed == Phase::running && phase == Phase::together)) return;
  const std::string name = std::string("Checkpointer::") + call + "()";
  if (phase == Phase::constructed) throw UsageError(name + " before resume()");
  throw UsageError(name + (phase == Phase::finished ? " after finish()" : " a second time"));
}

Checkpointer::Checkpointer(SnapshotSource& source, CheckpointerOptions options)
    : state_(or_out_of_memory([&] { return std::make_unique<State>(source, std::move(options)); })) {}

// A disk that hangs is waited for beside the program: what the writer uses goes when the disk is back, or
// with the process.
Checkpointer::~Checkpointer() {
  if (!state_->process.is_this_one()) {
    leave_to_parent(state_);
    return;
  }
  if (state_->loop_runs()) state_->say_unfinished();
  if (!state_->gave_up) return;
  if (state_->ranks) state_->ranks->part();
  state_->book->close();
  log_warning("leaving a write behind that hangs in the disk; it counts for nothing");
  state_->monitor.stop();
  state_->watch->stop();
  try {
    std::thread([state = std::move(state_)]() mutable { state.reset(); }).detach();
  } catch (const std::exception&) {  // without a thread it was waited for here
  }
}

void Checkpointer::read_ahead() {
  if (state_->phase != State::Phase::constructed) return;
  if (!state_->ranks || state_->ranks->leads()) state_->finder.read_ahead();
}

Resumed Checkpointer::resume() {
  return or_out_of_memory([&] { return state_->resume(); });
}

void Checkpointer::before_update() { state_->before_update(); }

Decision Checkpointer::after_step(const StepReport& report) { return state_->after_step(report); }

bool Checkpointer::tick() { return state_->tick(); }

void Checkpointer::metric(const std::string& name, double value) { state_->metric(name, value); }

SaveHandle Checkpointer::save() { return state_->save(); }

void Checkpointer::request_save() {
  state_->monitor.post({"program", NoticeKind::checkpoint_now, std::nullopt, "the program asks for a save"});
}

void Checkpointer::request_stop(const std::string& reason) {
  state_->monitor.post({"program", NoticeKind::stop, std::nullopt, reason});
}

Checkpointer::EvaluationScope::EvaluationScope(Checkpointer& owner)
    : owner_(&owner), exceptions_(std::uncaught_exceptions()) {
  owner_->state_->enter_evaluation();
}

Checkpointer::EvaluationScope::~EvaluationScope() {
  if (!owner_->state_->process.is_this_one()) return;
  owner_->state_->leave_evaluation(std::uncaught_exceptions() > exceptions_);
}

void Checkpointer::EvaluationScope::cut_short() { owner_->state_->cut_short = true; }

int Checkpointer::finish() {
  if (!state_->process.is_this_one()) {
    throw UsageError(
        "Checkpointer::finish() in a forked child: the run belongs to the parent; end the child with "
        "_exit()");
  }
  return state_->finish();
}

AttemptNumber Checkpointer::attempt() const { return state_->started.record.attempt; }

Durable Checkpointer::last_durable() const {
  return or_out_of_memory([&]() -> Durable {
    if (state_->writer) {
      AsyncWriter::Acknowledged last = state_->writer->last_acknowledged();
      if (last.step >= 0) return {last.step, std::move(last.checkpoint), last.when};
    }
    return state_->started.durable;
  });
}

RunFigures Checkpointer::figures() const { return state_->book->figures(); }

Digest Checkpointer::state_digest() {
  return or_out_of_memory([&] { return state_->digest_now(); });
}

std::string Checkpointer::stop_reason() const {
  return state_->phase == State::Phase::finished ? state_->end_reason : state_->outlook.reason();
}

}}  // namespace holdfast::v1
