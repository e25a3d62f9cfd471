// A table of contents: what each call of the program does, in the order of a run's life.
#include "holdfast/checkpoint/checkpointer.h"

#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/checkpoint/internal/calls.h"
#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/or_out_of_memory.h"
#include "holdfast/checkpoint/internal/trial.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 {

using internal::Calls;
using internal::Engine;
using internal::or_out_of_memory;
using internal::RankGroup;
using internal::Run;

struct Checkpointer::Parts {
  Parts(SnapshotSource& source, CheckpointerOptions options)
      : trial(internal::Trial::begin(options)),
        group(internal::ranks_of(options.ranks.channel, source)),
        run(group ? group->source() : source, std::move(options)),
        engine(run, group.get()) {
    // Last: its threads use all the parts above.
    engine.driver.listener().start();
  }
  ~Parts() {
    calls.leave();
    engine.driver.listener().stop();
  }

  // What the program does at this boundary.
  Decision decide() {
    engine.quiet.end();
    if (trial) trial->at_boundary(engine, calls);
    Decision decision;
    calls.at_boundary(decision);
    if (trial) engine.quiet.end();  // a trial looks at every step
    if (decision.stop) run.source.learn({.stop = true});
    engine.boundary.leave();
    return decision;
  }

  bool loop_runs() const { return engine.start.begun() && !engine.end.over(); }
  // Ends the quiet steps: the call may change what the next one decides.
  void require_loop(const char* call) {
    engine.quiet.end();
    if (loop_runs()) [[likely]]
      return;
    const std::string name = std::string("Checkpointer::") + call + "()";
    throw UsageError(name + (engine.end.over() ? " after finish()" : " before resume()"));
  }

  // In a forked child the threads do not exist, and the files belong to the parent.
  const OwnerProcess process = {};
  std::optional<internal::Trial> trial;
  const std::unique_ptr<RankGroup> group;  // null: alone
  Run run;
  Engine engine;
  Calls calls{engine};
};

Checkpointer::Checkpointer(SnapshotSource& source, CheckpointerOptions options)
    : parts_(or_out_of_memory([&] {
        options.check();
        return std::make_unique<Parts>(source, std::move(options));
      })) {}

// The start.

void Checkpointer::read_ahead() {
  if (!parts_->engine.start.begun() && !parts_->engine.end.over()) parts_->calls.read_ahead();
}

std::optional<Peeked> Checkpointer::peek() {
  return or_out_of_memory([&] { return parts_->calls.peek(); });
}

Resumed Checkpointer::resume() {
  return or_out_of_memory([&] { return parts_->calls.resume(); });
}

// The loop.

void Checkpointer::before_update() { parts_->calls.before_update(); }

Decision Checkpointer::after_step(const StepReport& report) {
  Engine& engine = parts_->engine;
  if (engine.quiet.expected()) [[likely]] {
    if (engine.quiet.pass(engine.boundary.arrive(report))) [[likely]] {
      engine.boundary.leave();
      return {};
    }
  } else {
    parts_->require_loop("after_step");
    engine.boundary.arrive(report);
  }
  return parts_->decide();
}

void Checkpointer::expect_last_step(std::int64_t step) noexcept {
  parts_->engine.heartbeat.expect_last_step(step);
}

void Checkpointer::commit_after(std::function<void()> work) {
  parts_->run.before_commit.add(std::move(work));
}

bool Checkpointer::tick() {
  if (!parts_->engine.start.begun() && !parts_->engine.end.over()) return parts_->run.start_must_end();
  // The program may call this often: without news it reads a flag.
  if (!parts_->engine.driver.pressed() || !parts_->loop_runs()) return false;
  parts_->engine.quiet.end();
  return parts_->calls.tick();
}

SaveHandle Checkpointer::save() {
  parts_->require_loop("save");
  parts_->engine.boundary.settle();
  return parts_->calls.save();
}

void Checkpointer::request_save() {
  parts_->run.monitor.post(
      {"program", NoticeKind::checkpoint_now, std::nullopt, "the program asks for a save"});
}
void Checkpointer::request_stop(const std::string& reason) {
  parts_->run.monitor.post({"program", NoticeKind::stop, std::nullopt, reason});
}

// Evaluations, and what they measure.

Checkpointer::EvaluationScope::EvaluationScope(Checkpointer& owner)
    : owner_(&owner), exceptions_(std::uncaught_exceptions()) {
  Parts& parts = *owner_->parts_;
  parts.require_loop("EvaluationScope");
  parts.engine.boundary.settle();
  const internal::Waiting waiting(parts.run.time);
  if (parts.trial) parts.trial->evaluation_seen();
  parts.calls.enter_evaluation();
}

Checkpointer::EvaluationScope::~EvaluationScope() {
  if (!owner_->parts_->process.is_this_one()) return;
  owner_->parts_->engine.quiet.end();
  owner_->parts_->calls.leave_evaluation(std::uncaught_exceptions() > exceptions_);
}

void Checkpointer::EvaluationScope::cut_short() { owner_->parts_->calls.cut_short(); }

void Checkpointer::metric(const std::string& name, double value) {
  parts_->require_loop("metric");
  parts_->engine.boundary.settle();
  if (parts_->trial) parts_->trial->evaluation_seen();
  if (parts_->engine.saves.measure(name, value)) parts_->calls.save_best(name, value);
}

// The end.

int Checkpointer::finish() {
  if (!parts_->process.is_this_one()) {
    throw UsageError(
        "Checkpointer::finish() in a forked child: the run belongs to the parent; end the child with "
        "_exit()");
  }
  if (!parts_->engine.end.over()) {
    parts_->require_loop("finish");
    parts_->engine.boundary.settle();
    parts_->calls.finish();
  }
  return parts_->engine.end.code();
}

// If the disk hangs, another thread waits for it: the writer's objects end when the disk is back, or with the
// process.
Checkpointer::~Checkpointer() {
  if (!parts_->process.is_this_one()) {
    leave_to_parent(parts_);
    return;
  }
  Engine& engine = parts_->engine;
  if (parts_->loop_runs()) engine.end.say_unfinished();
  if (!engine.end.gave_up()) return;
  engine.others.part();
  parts_->run.book->close();
  log_warning(
      "a thread hangs in the disk and is left behind; a step that it was writing is not acknowledged");
  engine.driver.listener().stop();
  try {
    std::thread([parts = std::move(parts_)]() mutable { parts.reset(); }).detach();
  } catch (const std::exception&) {  // no thread could be made, so this one has waited
  }
}

// At any time.

std::filesystem::path Checkpointer::directory() const { return parts_->run.options.directory; }
AttemptNumber Checkpointer::attempt() const { return parts_->run.started.record.attempt; }

Durable Checkpointer::last_durable() const {
  return or_out_of_memory([&] { return parts_->run.last_durable(); });
}

RunFigures Checkpointer::figures() const { return parts_->run.book->figures(); }
std::vector<Notice> Checkpointer::notices() const { return parts_->run.monitor.notices(); }
std::optional<SteadyTime> Checkpointer::deadline() const { return parts_->run.monitor.named_deadline(); }

Digest Checkpointer::state_digest() {
  return or_out_of_memory([&] {
    parts_->engine.boundary.settle();
    return parts_->engine.saves.digest();
  });
}

std::string Checkpointer::stop_reason() const {
  const Engine& engine = parts_->engine;
  return engine.end.over() ? engine.end.reason() : parts_->engine.driver.reason();
}

}}  // namespace holdfast::v0_2
