#include "holdfast/checkpoint/internal/run_driver.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <variant>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How soon a notice is heard in a wait.
constexpr Duration kCallSlice = std::chrono::milliseconds(20);
constexpr Duration kPauseSlice = std::chrono::milliseconds(100);
constexpr Duration kSayWaiting = std::chrono::seconds(30);

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

run::Call call_of(const run::Event& event) {
  return std::visit(Cases{[](const run::BeforeUpdate&) { return run::Call::update; },
                          [](const run::StepDone&) { return run::Call::step; },
                          [](const run::SaveCalled&) { return run::Call::save; },
                          [](const run::BestMeasured&) { return run::Call::best; },
                          [](const run::EvaluationBegun&) { return run::Call::evaluation_begin; },
                          [](const run::Ticked&) { return run::Call::tick; },
                          [](const run::EvaluationEnded&) { return run::Call::evaluation_end; },
                          [](const auto&) { return run::Call::finish; }},
                    event);
}

}  // namespace

RunDriver::RunDriver(Run& run, Saves& saves, OtherRanks& others)
    : run_(run), saves_(saves), others_(others), listener_(run, *this, others) {
  static_cast<void>(SavePolicy(run.options.every, run.clock.now(), 0));  // refuses triggers that cannot be
  sources_.reserve(16);
  others_.when_share_ends([this](int save, run::Outcome outcome) {
    give(run::SaveEnded{save, outcome});
    give(run::WriterIdle{});
  });
}

void RunDriver::begin() {
  const StartedRun& started = run_.started;
  const SourceTraits source = run_.source.traits();
  const NoticeOptions& notices = run_.options.notices;
  const MutexLock lock(mutex_);
  core_.emplace(run::RunOptions{
      .rank = others_.rank(),
      .world = others_.world_size(),
      .every = run_.options.every,
      .on_notice = notices.on_notice == OnNotice::callback ? OnNotice::train_on : notices.on_notice,
      .on_device = source.on_device,
      .second_image = run_.options.writing.second_image,
      .needs_others = !others_.alone() && source.needs_others,
      .resumed = started.resumed.step,
      .resumed_durable = started.is_safe,
      .durable = started.durable.step,
      .started = run_.clock.now()});
  run::Actions none;
  for (const Notice& notice : run_.monitor.standing_notices()) consider(event_of(notice), none);
  run_.monitor.take_risk();
  if (run_.monitor.take_checkpoint_request()) {
    consider(run::NoticeHeard{.kind = NoticeKind::checkpoint_now}, none);
  }
  // The writer's thread may have found it before the core existed.
  if (run_.writer && run_.writer->superseded()) consider(run::Superseded{}, none);
  if (standby_) consider(run::StandbyReady{true}, none);
  quiet_ = {};
  begun_.store(true, std::memory_order_release);
}

// Events.

void RunDriver::give(const run::Event& event) noexcept {
  run::Actions now;
  {
    const MutexLock lock(mutex_);
    if (!core_) return;
    consider(event, now);
  }
  carry_out(now);
}

void RunDriver::consider(run::Event event, run::Actions& now) {
  if (std::holds_alternative<run::WriterIdle>(event)) in_flight_ = 0;
  if (std::holds_alternative<run::StepDone>(event) && core_->schedule().automatic()) {
    const RunFigures figures = run_.book->figures();
    if (figures.durable > 0 && std::exchange(counted_, figures.durable) != figures.durable) {
      // The measured loss of time, once it is known; until then the training's waits.
      core_->schedule().measured({.stall = figures.lost().value_or(figures.blocked) / figures.durable,
                                  .write = figures.last.write + figures.last.commit});
    }
  }
  run::Known known{.costs = run_.costs.costs(),
                   .going_home = run_.book->going_home(false),
                   .newer_going_home = run_.book->going_home(true)};
  known.costs.agreement = others_.agreement();
  quiet_ = {};
  for (bool more = true; more;) {
    more = false;
    core_->know(known);
    for (const run::Action& action : core_->on(event, run_.clock.now())) {
      const auto* const vote = std::get_if<run::PostVote>(&action);
      if (vote != nullptr && others_.alone()) {  // its vote is the result
        event = run::VoteResult{vote->vote};
        more = true;
      } else {
        take(action, now);
      }
    }
  }
  // Now: what is heard while the last save is copied does not change why the run stops.
  if (core_->leaving()) record_reason();
  disturbed_.store(
      !std::holds_alternative<run::StepDone>(event) && !std::holds_alternative<run::VoteResult>(event),
      std::memory_order_relaxed);
  pressed_.store(core_->ends().pending() || core_->must_look(), std::memory_order_relaxed);
  changed_.notify_all();
}

// Under the lock, because later events must find it done; or soon, on this thread; or by the training thread.
void RunDriver::take(const run::Action& action, run::Actions& now) {
  if (const auto* const free = std::get_if<run::FreeImage>(&action)) return saves_.free_image(free->image);
  if (const auto* const wake = std::get_if<run::WakeAt>(&action)) {
    wake_ = wake->at;
    return;
  }
  if (const auto* const quiet = std::get_if<run::Quiet>(&action)) {
    quiet_ = *quiet;
    return;
  }
  if (const auto* const may = std::get_if<run::LetMachineGo>(&action)) {
    may_go_ = may->so;
    return;
  }
  if (const auto* const limit = std::get_if<run::LimitWrites>(&action)) {
    others_.lift_limit(!limit->so);
    if (run_.writer) limit->so ? run_.writer->restore_limit() : run_.writer->lift_limit();
    return;
  }
  if (const auto* const write = std::get_if<run::Write>(&action)) {
    in_flight_ = 1;
    writing_ = write->save;
    return now.push_back(*write);
  }
  const auto* const said = std::get_if<run::Say>(&action);
  // `not_kept` makes a failed save of the training's step. Rank 0's debts have a lock; what other ranks
  // decline is told by their training thread.
  const bool soon = (said != nullptr && said->what != run::Remark::not_kept) ||
                    (std::holds_alternative<run::Decline>(action) && others_.leads()) ||
                    std::holds_alternative<run::Settle>(action) ||
                    std::holds_alternative<run::CallForHelp>(action);
  if (soon) return now.push_back(action);
  if (const auto* const exit = std::get_if<run::Exit>(&action)) exit_ = *exit;
  if (count_ < kMostWaiting) {
    waiting_[(first_ + count_++) % kMostWaiting] = action;
  } else {
    log_error("a bug of Holdfast: the training thread has too much to do, and leaves some out");
  }
}

// After a notice. The monitor tells one notice at a time, so nothing that may call the program is done there:
// its on_save may ask for a save, which is a notice.
void RunDriver::carry_out_noticed() noexcept {
  run::Actions actions;
  bool calls = false;
  {
    const MutexLock lock(mutex_);
    calls = std::exchange(calls_, false);
    if (noticed_.empty() && !calls) return;
    actions = noticed_;
    noticed_.clear();
  }
  if (calls) others_.call(true);
  carry_out(actions);
}

void RunDriver::carry_out(const run::Actions& actions) noexcept {
  saves_.bury();
  for (const run::Action& action : actions) {
    std::visit(Cases{[&](const run::Write& write) {
                       if (saves_.write(write)) return;
                       give(run::SaveEnded{write.save, run::Outcome::failed});
                       give(run::WriterIdle{});
                     },
                     [&](const run::Settle& settle) { saves_.settle(settle); },
                     [&](const run::Decline& decline) { this->decline(decline.round); },
                     [&](const run::CallForHelp&) { others_.call(true); },
                     [&](const run::Say& said) { say(said); }, [](const auto&) {}},
               action);
  }
}

void RunDriver::decline(int round) noexcept {
  try {
    others_.decline(round, saves_.why_not_staged());
  } catch (const std::exception& error) {
    log_warning("the other ranks could not be told that a save is left out: {}", what_of(error));
  }
}

// Calls.

bool RunDriver::next_waiting(run::Action& next) {
  const MutexLock lock(mutex_);
  if (count_ == 0) return false;
  next = waiting_[first_];
  first_ = (first_ + 1) % kMostWaiting;
  --count_;
  return true;
}

RunDriver::Answer RunDriver::call(const run::Event& event) {
  Answer answer;
  {
    const MutexLock lock(mutex_);
    if (core_ && core_->over()) {  // nothing is decided any more
      answer.exit = exit_;
      return answer;
    }
  }
  listener_.heard();
  in_call_ = call_of(event);
  waits_since_ = said_ = run_.clock.now();
  waited_ = Duration::zero();
  const bool begins = std::holds_alternative<run::EvaluationBegun>(event);
  if (begins) evaluated_ = run_.step();
  if (begins || std::holds_alternative<run::EvaluationEnded>(event)) evaluating_ = begins;
  if (pressed()) {
    look_at_sleep();
    ask_the_program();
  }
  try {
    if (others_.save_was_spoiled()) give(run::NoticeHeard{.kind = NoticeKind::checkpoint_now});
    give(event);
    if (begins && !others_.alone() && others_.leads()) listener_.wake();
    run::Action next;
    while (in_call_ != run::Call::none) {
      carry_out_noticed();
      if (next_waiting(next)) {
        perform(next, answer);
        waited_ = Duration::zero();
      } else {
        wait(answer);
      }
    }
  } catch (...) {
    drop_waiting();
    voting_ = false;
    in_call_ = run::Call::none;
    waiting_time_.reset();
    pause_.reset();
    pausing_ = said_pause_ = false;
    throw;
  }
  waiting_time_.reset();
  if (std::exchange(said_pause_, false) && !answer.returned.stop && !answer.exit) {
    if (others_.leads()) run_.ledger.go_on(run_.step(), "the machine stays");
    log_info("going on after a pause of {}", format_duration(pause_->so_far()));
  }
  pausing_ = false;
  pause_.reset();
  if (answer.returned.stop || answer.exit) {
    const MutexLock lock(mutex_);
    record_reason();
  }
  return answer;
}

// The call ends with an exception. The core must not wait for what is not done.
void RunDriver::drop_waiting() noexcept {
  run::Action dropped;
  while (next_waiting(dropped)) {
    if (const auto* const stage = std::get_if<run::Stage>(&dropped)) give(run::Staged{stage->image, false});
    if (const auto* const close = std::get_if<run::CloseCopy>(&dropped)) {
      give(run::CopyClosed{.image = close->image, .intact = false});
    }
  }
}

void RunDriver::perform(const run::Action& action, Answer& answer) {
  const bool copies =
      std::holds_alternative<run::Stage>(action) || std::holds_alternative<run::CloseCopy>(action);
  if (copies) count_as_waiting();
  std::visit(
      Cases{[&](const run::Stage& stage) {
              const run::Staged staged = saves_.stage(stage, in_call_);
              if (SaveHandle newest = saves_.newest(); stage.for_save && newest.step() == stage.step)
                answer.save = newest;
              give(staged);
            },
            [&](const run::CloseCopy& close) { give(saves_.close_copy(close.image, in_call_)); },
            [&](const run::Decline& declined) { decline(declined.round); },
            [&](const run::Say& said) { say(said); }, [&](const run::SendShare&) { others_.send_share(); },
            [&](const run::SendOwn&) { answer.save = others_.send_own(); },
            [&](const run::PostVote& vote) {
              bool holds = false;
              {
                const MutexLock lock(mutex_);
                holds = core_->holds_image();
              }
              // In this order: a notice that arrives between the two lines makes a call of its own.
              others_.call(false);
              if (run_.monitor.pending()) others_.call(true);
              ends_ = in_call_ == run::Call::finish;
              others_.post(vote.vote, ends_, holds);
              voting_ = true;
            },
            [&](const run::AwaitOutcome&) {
              const OtherRanks::Outcome outcome = others_.hear_outcome([this] { return must_stop(); });
              told_reason_ = outcome.reason;
              others_.limit_waits(Duration::zero());
              give(run::OutcomeTold{outcome.code, outcome.durable});
            },
            [&](const run::AskOthers&) {
              others_told_ = others_.ask_for_stops();
              give(run::OthersAnswered{!others_told_.empty()});
            },
            [&](const run::TellOutcome&) { tells_outcome_ = true; },
            [&](const run::Return& returned) {
              answer.returned = returned;
              in_call_ = run::Call::none;
              if (returned.saved && answer.save.step() != run_.step()) {
                answer.save = saves_.handle(returned.save, run_.step());
              }
            },
            [&](const run::Exit& exit) {
              answer.exit = exit;
              in_call_ = run::Call::none;
            },
            [](const auto&) {}},
      action);
}

// The end is not training, and a pause has its own account.
void RunDriver::count_as_waiting() {
  if (!pausing_ && !waiting_time_ && in_call_ != run::Call::finish) waiting_time_.emplace(run_.time);
}

// One slice of the wait for what comes next.
void RunDriver::wait(Answer& /*answer*/) {
  if (voting_) {
    std::optional<Duration> left;
    {
      const MutexLock lock(mutex_);
      const SteadyTime end = core_->ends().earliest({.sleeps = run::RunEnds::Sleeps::left_out});
      if (end != run::kNever) left = time_until(end, run_.clock.now());
    }
    const auto at = pausing_                        ? OtherRanks::At::pause
                    : in_call_ != run::Call::finish ? OtherRanks::At::boundary
                    : ends_                         ? OtherRanks::At::end
                                                    : OtherRanks::At::last_boundary;
    if (const auto all = others_.result(left, at)) {
      voting_ = false;
      hear_others(*all);
    }
  } else {
    count_as_waiting();
    Duration sleep{};
    {
      const MutexLock lock(mutex_);
      if (count_ > 0) return;
      // Alone nothing is voted on while a write is in flight: it may be the one that a pause is for.
      const bool looks_on = pausing_ && !others_.alone();
      if ((in_flight_ != 0 && !looks_on) || wake_ == run::kNever) {
        if (changed_.wait_for(mutex_, kCallSlice,
                              [this]() HOLDFAST_REQUIRES(mutex_) { return count_ > 0; })) {
          return;
        }
        waited_ += kCallSlice;
      } else {
        sleep = std::clamp<Duration>(wake_ - run_.clock.now(), Duration::zero(), kPauseSlice);
        waited_ += sleep;
      }
    }
    // Others count this rank as lost if it waits for its own disk for longer.
    if (!others_.leads() && waited_ >= others_.longest_wait()) give(run::WaitedEnough{});
    if (pausing_ && in_flight_ == 0) say_pause(run_.step());
    if (sleep > Duration::zero()) run_.clock.sleep_for(sleep);
  }
  listener_.heard();
  look_at_sleep();
  ask_the_program();
  SteadyTime wake{};
  {
    const MutexLock lock(mutex_);
    wake = wake_;
  }
  const SteadyTime now = run_.clock.now();
  if (now >= wake) give(run::TimeReached{});
  if (in_call_ == run::Call::finish && now - said_ >= kSayWaiting) {
    said_ = now;
    log_info("still writing the last checkpoint ({:.0f} s so far)",
             std::chrono::duration<double>(now - waits_since_).count());
  }
}

// Questions.

run::Quiet RunDriver::quiet() const {
  const MutexLock lock(mutex_);
  return quiet_;
}

bool RunDriver::pending() const noexcept {
  if (!begun()) return run_.monitor.pending();
  const MutexLock lock(mutex_);
  return core_->ends().pending() || core_->must_look();
}

bool RunDriver::has_work() const noexcept {
  const MutexLock lock(mutex_);
  const bool called = evaluating() && !others_.alone() && others_.leads();  // another rank may call
  return core_ && (!noticed_.empty() || calls_ || called || (evaluating() && wake_ != run::kNever));
}

bool RunDriver::must_stop() const noexcept {
  const MutexLock lock(mutex_);
  return core_ && (core_->must_look() || core_->ends().stop_requested());
}

bool RunDriver::covered() const noexcept {
  const MutexLock lock(mutex_);
  return core_ && core_->is_covered();
}

bool RunDriver::safe() const noexcept {
  const MutexLock lock(mutex_);
  return core_ && core_->is_safe();
}

std::optional<Duration> RunDriver::time_left() const noexcept {
  const SteadyTime now = run_.clock.now();
  const MutexLock lock(mutex_);
  if (!core_) return run_.monitor.time_left();
  // One that has passed says nothing about the time left.
  const SteadyTime ahead = core_->ends().earliest({.after = now});
  const SteadyTime end = ahead != run::kNever ? ahead : core_->ends().earliest({});
  if (end == run::kNever) return std::nullopt;
  return time_until(end, now);
}

NextSave RunDriver::next_save() const noexcept {
  const SteadyTime now = run_.clock.now();
  const MutexLock lock(mutex_);
  if (!core_) return {};
  const SavePolicy& schedule = core_->schedule();
  return {.at = schedule.next_due_time(now),
          .step = schedule.next_due_step(now),
          .interval = schedule.interval(run_.costs.costs().step)};
}

bool RunDriver::out_of_time(SteadyTime since) noexcept {
  const MutexLock lock(mutex_);
  return core_ && run_.clock.now() >= core_->limit_of_wait(since);
}

void RunDriver::learn_lives(const std::vector<MachineLife>& lives) noexcept {
  const MutexLock lock(mutex_);
  if (core_) core_->schedule().learn(lives);
}

void RunDriver::save_ends(const SaveHandle::Shared& /*save*/, Outcome outcome) noexcept {
  give(run::SaveEnded{writing_, outcome == Outcome::durable      ? run::Outcome::durable
                                : outcome == Outcome::superseded ? run::Outcome::superseded
                                                                 : run::Outcome::failed});
  // What asked for it still stands, and the training thread may be busy for long.
  if (outcome != Outcome::durable && evaluating()) listener_.wake();
}

}}}  // namespace holdfast::v0_2::internal
