// Boundaries, votes and pauses, and the one place that judges whether a waiting call can go on.
#include "run_core.h"

#include <algorithm>
#include <utility>

#include "planted.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// What is being written when a rank is lost may end within this.
constexpr Duration kPartingTime = std::chrono::seconds(10);
// Rank 0 commits, however slow its disk; signs of life find that it died.
constexpr Duration kOutcomeWithin = std::chrono::hours(1);

}  // namespace

RunCore::RunCore(RunOptions options)
    : options_(std::move(options)),
      schedule_(options_.every, options_.started, options_.resumed),
      step_(options_.resumed),
      durable_(options_.resumed_durable ? options_.resumed : -1),
      now_(options_.started) {}

Actions RunCore::on(const Event& event, SteadyTime now) {
  now_ = now;
  if (!over_) {
    std::visit([this](const auto& what) { handle(what); }, event);
    poll();
    arm();
  }
  return std::exchange(actions_, {});
}

// Handlers change the state. Here alone is judged what the training thread waits for.
void RunCore::poll() {
  while (!over_) {
    switch (wait_) {
      case Wait::vote:
        if (!votes_.result) return;
        wait_ = Wait::none;
        act();
        break;
      case Wait::image: {
        // A save that waits for the writer is recalled only for one that follows.
        const bool for_evaluation = call_ == Call::evaluation_begin;
        const bool pressed = ends_.stop_requested() || ends_.earliest({}) != kNever;
        if (!for_evaluation || (pressed && commit_fits())) recall();
        if (image_.state == Image::free) {
          wait_ = Wait::none;
          for_evaluation ? image_for_evaluation() : image_is_free();
        } else if (now_ >= limit_of_wait(wait_since_)) {
          wait_ = Wait::none;
          say(Remark::no_image);
          if (call_ == Call::finish) end_.in_time = false;
          if (!for_evaluation) decline();
          if (call_ == Call::save || call_ == Call::best) wanted_ = true;  // the next step tries again
          proceed();
        } else {
          return;
        }
        break;
      }
      case Wait::look:
        if (now_ < look_at_) return;
        wait_ = Wait::none;
        post(make_vote(false));
        wait_ = Wait::vote;
        break;
      case Wait::writer:
        if (!open_ && writer_ == Writer::idle) {
          wait_ = Wait::none;
          end_.code ? leave_with(*end_.code) : writer_rests();
        } else if (now_ >= (end_.code ? wait_since_ + kPartingTime : limit_of_wait(wait_since_))) {
          wait_ = Wait::none;
          end_.in_time = false;
          end_.code ? leave_with(*end_.code) : judge();
        } else {
          return;
        }
        break;
      case Wait::outcome:
        if (now_ < wait_since_ + kOutcomeWithin) return;
        leave_with(static_cast<int>(ExitCode::interrupted));
        break;
      case Wait::none:
      case Wait::staged:
      case Wait::closed:
      case Wait::answer:
        return;
    }
  }
}

// The timer and the write limit follow from the state, so no handler can forget them.
void RunCore::arm() {
  SteadyTime next = kNever;
  if (wait_ == Wait::image || (wait_ == Wait::writer && !end_.code)) next = limit_of_wait(wait_since_);
  if (wait_ == Wait::writer && end_.code) next = wait_since_ + kPartingTime;
  if (wait_ == Wait::look) next = look_at_;
  if (wait_ == Wait::outcome) next = wait_since_ + kOutcomeWithin;
  // In an evaluation a commit of its image that failed is tried again.
  const bool asked = wanted_ || ends_.pending() || evaluation_.help_wanted;
  if (evaluation_.runs && image_.held && evaluation_.retry > now_ && !covered() && asked) {
    next = std::min(next, evaluation_.retry);
  }
  if (next != armed_) {
    armed_ = next;
    emit(WakeAt{next});
  }
  const bool pressed = must_stop() || end_.code || ends_.earliest({}) != kNever;
  const bool limited = planted(Planted::keeps_the_write_limit) ||
                       (!pressed && !(planted(Planted::never_restores_the_write_limit) && !limited_));
  if (limited != limited_) {
    limited_ = limited;
    emit(LimitWrites{limited});
  }
}

// Boundaries.

void RunCore::handle(const StepDone& event) {
  call_ = Call::step;
  if (image_.state == Image::beside_step) {  // an update without before_update()
    beside_step_works_ = false;
    say(Remark::late_gives_up);
    planted(Planted::leaves_a_copy_open) ? submit() : drop_copy();
  }
  reach(event.step);
  stop_returned_ = saved_here_ = false;
  costs_.stepped(event.took);
  if (votes_.pending) {  // all ranks voted at an earlier boundary
    wait_ = Wait::vote;
  } else {
    vote_or_return();
  }
}

// A new boundary, or one that quiet steps have reached since the last event.
void RunCore::reach(Step step) {
  if (step <= step_) return;
  let_image_go();
  memory_ = Memory::boundary;
  result_missing_ = options_.late_results;
  step_ = step;
  boundary_ = now_;
}

void RunCore::handle(const BeforeUpdate& event) {
  reach(event.step);
  call_ = Call::update;
  update_announced_ = true;
  memory_ = Memory::updating;
  if (planted(Planted::leaves_a_copy_open) || !close_copy()) give_back();
}

// The call of the training thread is over.
void RunCore::give_back() {
  if (call_ == Call::step && stop_returned_) settle_result();
  const Call call = std::exchange(call_, Call::none);
  emit(Return{call, call == Call::tick ? leaving_ : stop_returned_, saved_here_});
  if (call != Call::step) return;
  update_announced_ = false;
  const bool busy = wanted_ || leaving_ || superseded_ || open_ || votes_.pending || ends_.pending();
  if (busy) return;
  if (planted(Planted::is_quiet_too_long)) {
    const Step late = alone() ? schedule_.next_due_step(now_).value_or(step_) - step_ : 0;
    return emit(Quiet{(alone() ? step_ : votes_.next) + 4 * late, kNever});
  }
  if (!alone()) return emit(Quiet{votes_.next, kNever});
  emit(
      Quiet{schedule_.next_due_step(now_).value_or(kNoStep), schedule_.next_due_time(now_).value_or(kNever)});
}

// What other threads bring.

void RunCore::handle(const NoticeHeard& event) {
  ends_.hear(event, now_);
  if (const RunEnds::End* const end = ends_.standing()) pursue(*end);
  if (wait_ == Wait::look && alone()) look_at_ = now_;
  commit_from_evaluation();
}

void RunCore::handle(const MachineWoke& /*event*/) {
  ends_.dismiss(now_ - kAliveAfter, true);
  say(Remark::awake);
}

void RunCore::handle(const Superseded& /*event*/) {
  superseded_ = true;
  if (planted(Planted::ignores_a_newer_attempt)) return;
  if (open_ && (open_->state == Save::waiting || open_->state == Save::arriving)) settle(Outcome::superseded);
}

void RunCore::handle(const TimeReached& /*event*/) { commit_from_evaluation(); }

void RunCore::handle(const CameHome& event) {
  costs_.came_home(event.took);
  // The mirror takes the newest durable checkpoint next.
  going_home_ = durable_ > event.step ? durable_ : -1;
  going_home_since_ = now_;
}

}}}  // namespace holdfast::v0_2::run
