// Boundaries, votes and pauses, and the one place that judges whether a waiting call can go on.
#include "holdfast/planning/run_core.h"

#include <algorithm>
#include <utility>

#include "holdfast/planning/internal/planted.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// Rank 0 commits, however slow its disk; signs of life find that it died.
constexpr Duration kOutcomeWithin = std::chrono::hours(1);

}  // namespace

RunCore::RunCore(RunOptions options)
    : options_(std::move(options)),
      schedule_(options_.every, options_.started, options_.resumed),
      step_(options_.resumed),
      durable_(options_.resumed_durable && options_.resumed > 0 ? options_.resumed : options_.durable),
      votes_{.cadence = VoteCadence(options_.world)},
      now_(options_.started) {}

Actions RunCore::on(const Event& event, SteadyTime now) {
  now_ = now;
  if (over_) {  // a wait for the last lines of the ledger still ends by what is heard
    if (const auto* const notice = std::get_if<NoticeHeard>(&event)) ends_.hear(*notice, now_);
  } else {
    std::visit([this](const auto& what) { handle(what); }, event);
    poll();
    arm();
  }
  const Actions actions = actions_;
  actions_.clear();
  return actions;
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
        const bool to_keep = keeping_ != Keep::nothing;
        if (!to_keep && wish_.last && leads() && last_save_too_late() &&
            !planted(Planted::asks_no_second_time_after_a_wait)) {
          wait_ = Wait::none;
          decide();
          decline();
          proceed();
          break;
        }
        const bool pressed = ends_.stop_requested() || ends_.earliest({}) != kNever;
        if (!to_keep || (pressed && commit_fits())) recall();
        if (image_.state == Image::free) {
          wait_ = Wait::none;
          to_keep ? image_to_keep() : image_is_free();
        } else if (now_ >= limit_of_wait(wait_since_) || std::exchange(waited_enough_, false)) {
          wait_ = Wait::none;
          if (!to_keep) say(Remark::no_image);
          if (keeping_ == Keep::evaluation) {
            failing_ = true;
            say(Remark::not_kept);
          }
          if (call_ == Call::finish) end_.in_time = false;
          if (!to_keep) decline();
          if (call_ == Call::save || call_ == Call::best) wanted_ = true;  // the next step tries again
          to_keep ? end_keeping() : proceed();
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
        if (!open_ && !in_flight_ && writer_ == Writer::idle) {
          wait_ = Wait::none;
          end_.code ? leave_with(*end_.code) : writer_rests();
        } else if (now_ >= limit_of_end() || std::exchange(waited_enough_, false)) {
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
  if (wait_ == Wait::image) next = limit_of_wait(wait_since_);
  if (wait_ == Wait::writer) next = limit_of_end();
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

// A known end waits for what is being written.
SteadyTime RunCore::limit_of_end() const {
  if (!end_.code || end_.within == Duration::max()) return limit_of_wait(wait_since_);
  return wait_since_ + end_.within;
}

// Boundaries.

void RunCore::handle(const StepDone& event) {
  call_ = Call::step;
  update_announced_ = update_announced_ || event.announced;
  keep_ = event.keep;
  if (image_.state == Image::beside_step) {  // an update without before_update()
    beside_step_works_ = false;
    say(Remark::late_gives_up);
    planted(Planted::leaves_a_copy_open) ? submit() : drop_copy();
  }
  reach(event.step);
  stop_returned_ = saved_here_ = false;
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
  step_ = step;
  boundary_ = now_;
}

void RunCore::handle(const BeforeUpdate& event) {
  reach(event.step);
  call_ = Call::update;
  update_announced_ = true;
  memory_ = Memory::updating;
  if (image_.kept) let_image_go();
  if (planted(Planted::leaves_a_copy_open) || !close_copy()) give_back();
}

// The call of the training thread is over.
void RunCore::give_back() {
  if (call_ == Call::step && keep_boundary()) return;
  const Call call = std::exchange(call_, Call::none);
  const bool stop = call == Call::tick ? leaving_ : stop_returned_;
  emit(Return{call, stop, saved_here_, newest_step_ == step_ && newest_stands_ ? newest_id_ : 0});
  if (call != Call::step) return;
  update_announced_ = false;
  const bool busy = wanted_ || leaving_ || superseded_ || open_ || in_flight_ || image_.held ||
                    votes_.pending || ends_.pending();
  if (busy) return;
  if (planted(Planted::is_quiet_too_long)) {
    const Step late = alone() ? schedule_.next_due_step(now_).value_or(step_) - step_ : 0;
    return emit(Quiet{(alone() ? step_ : votes_.cadence.next_step()) + 4 * late, kNever});
  }
  if (!alone()) return emit(Quiet{votes_.cadence.next_step(), kNever});
  emit(
      Quiet{schedule_.next_due_step(now_).value_or(kNoStep), schedule_.next_due_time(now_).value_or(kNever)});
}

// True: an image of this boundary is made first, and the call goes on with it.
bool RunCore::keep_boundary() {
  const Keep keep = std::exchange(keep_, Keep::nothing);
  if (keep == Keep::nothing || !leads() || options_.needs_others || image_.held || safe()) return false;
  keeping_ = keep;
  if (!close_copy()) image_to_keep();
  return true;
}

// What other threads bring.

void RunCore::handle(const WaitedEnough& /*event*/) {
  waited_enough_ = wait_ == Wait::image || wait_ == Wait::writer;
}

void RunCore::handle(const StandbyReady& event) {
  standby_ready_ = event.so && !planted(Planted::keeps_the_run_from_a_standby);
  if (wait_ == Wait::look && alone()) look_at_ = now_;
}

void RunCore::handle(const NoticeHeard& event) {
  ends_.hear(event, now_);
  end_.gave_up = end_.gave_up || event.gives_up;
  if (const RunEnds::End* const end = ends_.standing()) {
    pursue(*end);
  } else {
    forget_pursued();
  }
  if (wait_ == Wait::look && alone()) look_at_ = now_;
  // Rank 0 may be in an evaluation that this rank has left, or does not enter.
  if (!leads() && ends_.pending()) {
    evaluation_.help_called = true;
    emit(CallForHelp{});
  }
  commit_from_evaluation();
}

void RunCore::handle(const NoticeAnswered& event) {
  ends_.answer(event);
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
  if (open_ && open_->state == Save::waiting) settle(Outcome::superseded);
}

void RunCore::handle(const TimeReached& /*event*/) { commit_from_evaluation(); }

}}}  // namespace holdfast::v0_2::run
