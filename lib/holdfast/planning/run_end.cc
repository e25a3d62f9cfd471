// Evaluations, in which the state stands still while memory may change, and the end of a run with its exit
// code. Whichever thread brings an event, the same state decides; the image stays where it is.
#include <algorithm>
#include <utility>

#include "holdfast/planning/internal/planted.h"
#include "holdfast/planning/run_core.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

constexpr Duration kCommitAgain = std::chrono::seconds(2);
int number(ExitCode code) { return static_cast<int>(code); }

}  // namespace

void RunCore::handle(const EvaluationBegun& event) {
  reach(event.step);
  call_ = Call::evaluation_begin;
  stop_returned_ = saved_here_ = false;
  evaluation_.runs = true;
  evaluation_.unfinished = evaluation_.best_wanted = evaluation_.help_called = false;
  evaluation_.retry = now_;
  if (event.again) evaluation_.shares_of = -1;
  // No image can be made of disturbed memory, and a durable step needs none. A save that is open may fail.
  const bool needless =
      image_.held || memory_ != Memory::boundary || options_.needs_others || (leads() && safe());
  if (!leads() && !needless) emit(SendShare{step_});
  if (needless || !leads() || (planted(Planted::tries_no_more_in_an_evaluation) && covered())) {
    commit_from_evaluation();
    return give_back();
  }
  keeping_ = Keep::evaluation;
  if (!close_copy()) image_to_keep();
}

void RunCore::image_to_keep() {
  bring_back();
  if (image_.state != Image::free && image_.step == step_) {
    return image_.part ? end_keeping() : image_is_kept();
  }
  if (image_.state != Image::free) {
    if (keeping_ == Keep::epoch) return end_keeping();  // not worth a wait
    wait_ = Wait::image;
    wait_since_ = now_;
    return;
  }
  image_ = {.state = Image::copying, .id = ++ids_, .step = step_};
  emit(Stage{image_.id, step_, Copy::whole, false});
  wait_ = Wait::staged;
}

void RunCore::image_is_kept() {
  image_.held = true;
  image_.kept = keeping_ != Keep::evaluation;
  keeping_ = Keep::nothing;
  commit_from_evaluation();
  give_back();
}

// Without an image.
void RunCore::end_keeping() {
  keeping_ = Keep::nothing;
  give_back();
}

// Rank 0 commits the boundary alone when an end is announced to any rank: the others are inside the program's
// code, and may wait there for each other.
void RunCore::commit_from_evaluation() {
  if (!evaluation_.runs) return;
  if (!leads()) {
    if (ends_.pending() && !std::exchange(evaluation_.help_called, true)) emit(CallForHelp{});
    return;
  }
  if (!(ends_.pending() || evaluation_.help_wanted || wanted_ || must_stop())) return;
  const bool shelved = open_ && open_->state == Save::shelved;
  if (!image_.held || (open_ && !shelved) || covered()) return;
  if (!alone() && evaluation_.shares_of != step_) return;  // a rank's own state is missing
  const bool superseded = superseded_ && !planted(Planted::ignores_a_newer_attempt);
  if (superseded || now_ < evaluation_.retry || !commit_fits()) return;
  evaluation_.retry = now_ + kCommitAgain;
  if (!shelved) open_ = Save{.id = ++ids_, .step = step_, .since = now_};
  open_->asked = true;
  evaluation_.save = open_->id;
  if (!pursued_) answer_ = {.save = open_->id, .counts = true};
  schedule_.saved(boundary_, step_);
  submit();
  // It answers all that was asked for since the boundary.
  take_requests();
  wanted_ = false;
}

void RunCore::handle(const Ticked& /*event*/) {
  call_ = Call::tick;
  if (ends_.drop_outlived(now_)) say(Remark::outlived);
  // For good: the program leaves its loop by this answer. With several ranks a stop counts once all have
  // agreed.
  const bool stop = alone() ? should_stop() : leaving_;
  leaving_ = leaving_ || stop;
  evaluation_.unfinished = evaluation_.unfinished || stop;
  commit_from_evaluation();
  give_back();
}

void RunCore::handle(const EvaluationEnded& event) {
  call_ = Call::evaluation_end;
  evaluation_.runs = evaluation_.help_wanted = false;
  const bool broken = evaluation_.unfinished || event.cut_short || event.thrown;
  const bool disturbs = broken && (event.thrown || alone()) && memory_ == Memory::boundary;
  if (disturbs && !planted(Planted::takes_a_broken_evaluation_for_a_boundary)) memory_ = Memory::disturbed;
  const bool best = std::exchange(evaluation_.best_wanted, false) && !broken && memory_ == Memory::boundary;
  if (best && !should_stop() && !covered()) {
    if (!image_.kept) let_image_go();  // its random streams are those before the evaluation, which is over
    return begin({.asked = true, .blocking = true});
  }
  // Of one that was broken off the image is all that is left of the boundary. Several ranks save all
  // together.
  const bool whole = !broken && memory_ == Memory::boundary;
  if (whole && open_ && open_->state == Save::shelved) {  // compared before the next update, as without it
    open_->state = Save::beside_step;
    image_.state = Image::beside_step;
    image_.held = false;
  }
  if (!image_.kept && (!alone() || whole)) let_image_go();
  give_back();
}

void RunCore::handle(const HelpCalled& /*event*/) {
  evaluation_.help_wanted = true;
  commit_from_evaluation();
}

void RunCore::handle(const SharesHere& event) {
  if (event.image != image_.id) return;  // of an earlier evaluation at this step
  evaluation_.shares_of = std::max(evaluation_.shares_of, event.step);
  commit_from_evaluation();
}

void RunCore::let_image_go() {
  if (!std::exchange(image_.held, false)) return;
  if (open_ && open_->state == Save::shelved) return drop_copy();
  if (!open_) release_image();
}

// The end.

bool RunCore::memory_is_torn() const {
  if (planted(Planted::saves_a_torn_state_at_the_end)) return false;
  return (memory_ != Memory::boundary || evaluation_.runs) && !(image_.held && alone());
}

void RunCore::handle(const FinishCalled& event) {
  reach(event.step);
  call_ = Call::finish;
  if (event.stale || (!alone() && !image_.kept)) let_image_go();
  end_.interrupted = should_stop();
  end_.by_itself = !end_.interrupted;
  // A vote of the last step that is pending comes first.
  end_.voted = !votes_.pending;
  if (!votes_.pending) post(make_vote(true));
  wait_ = Wait::vote;
}

void RunCore::end_begins() {
  end_.torn = votes_.agreed.torn >= 0;
  end_.interrupted = end_.interrupted || should_stop();
  end_.by_itself = !end_.interrupted;
  if (end_.torn) say(Remark::torn);
  if (!leads()) {
    const bool joins = votes_.agreed.save >= 0 && !end_.torn && !hopeless(votes_.agreed);
    return joins ? begin({.last = true, .asked = true, .blocking = true}) : proceed();
  }
  // A copy in progress is completed only if its commit can end in time.
  if (end_.torn || image_.held || last_save_too_late()) drop_copy();
  if (close_copy()) return;
  end_.torn ? proceed() : commit_last();
}

void RunCore::commit_last() {
  if (covered() || (superseded_ && !planted(Planted::ignores_a_newer_attempt))) return proceed();
  const bool may_wait = end_.by_itself && !must_stop();
  end_.left_out = !may_wait && (last_save_too_late() || hopeless(votes_.agreed));
  if (!end_.left_out) return begin({.last = true, .asked = true, .blocking = true});
  if (!std::exchange(told_late_, true)) say(Remark::too_late);
  decline();
  proceed();
}

void RunCore::writer_rests() {
  const bool again = end_.in_time && !end_.torn && !covered() && !superseded_ && !end_.tried_again;
  if (!again || planted(Planted::tries_the_last_save_once)) return judge();
  end_.tried_again = true;
  commit_last();
}

void RunCore::judge() {
  // A stop that only another rank has heard since the last vote may be why the last save failed.
  const bool told_here = end_.interrupted || must_stop();
  const bool in_doubt = !alone() && !told_here && !safe() && end_.in_time;
  if (in_doubt && !std::exchange(end_.asked, true)) {
    wait_ = Wait::answer;
    return emit(AskOthers{});
  }
  const bool told = told_here || end_.others_told;
  if (superseded_) return leave_with(number(ExitCode::superseded), Ending::superseded);
  const bool no_step = !told && step_ == 0;
  if (end_.torn || no_step) {
    const Ending how = end_.torn ? Ending::torn : Ending::no_step;
    if (planted(Planted::ends_broken_evaluations_with_74))
      return leave_with(number(ExitCode::io_failed), how);
    if (told && end_.gave_up) return leave_with(number(ExitCode::io_failed), how);
    return leave_with(number(told ? ExitCode::interrupted : ExitCode::internal), how);
  }
  if (safe() || (planted(Planted::ends_with_zero_after_a_failure) && !told)) {
    if (end_.interrupted) return leave_with(number(ExitCode::interrupted), Ending::interrupted);
    return leave_with(number(ExitCode::complete), Ending::complete);
  }
  // Nothing failed: the next attempt resumes from the durable step.
  if (end_.in_time && end_.left_out && !failing_) {
    return leave_with(number(ExitCode::interrupted), Ending::left_out);
  }
  const bool resumes = told && durable_ >= 0 && !end_.gave_up;
  leave_with(number(resumes ? ExitCode::interrupted : ExitCode::io_failed), Ending::failed);
}

void RunCore::handle(const OthersAnswered& event) {
  if (wait_ != Wait::answer) return;
  wait_ = Wait::none;
  end_.others_told = event.told;
  judge();
}

void RunCore::leave_with(int code, Ending how) {
  if (in_flight_) settled(std::exchange(in_flight_, std::nullopt)->save, Outcome::failed);
  if (open_) {  // its outcome is not known, and nothing is acknowledged
    image_.held = image_.held || writer_ == Writer::writing;
    settle(Outcome::failed);
  }
  // What a thread in the disk still reads is left behind with it.
  if (writer_ != Writer::writing) release_image();
  if (leads() && !alone() && !end_.code) emit(TellOutcome{code, durable_});
  over_ = true;
  wait_ = Wait::none;
  emit(Exit{code, how});
}

void RunCore::handle(const RankLost& event) {
  end_.code = event.code;
  end_.within = event.within;
  end_pause();
  drop_copy();
  wait_ = Wait::writer;  // a save whose shares are all there may still end
  wait_since_ = now_;
}

void RunCore::handle(const OutcomeTold& event) {
  durable_ = std::max(durable_, event.durable);
  end_.code = event.code;
  end_.within = std::chrono::seconds(10);
  wait_ = Wait::writer;
  wait_since_ = now_;
}

}}}  // namespace holdfast::v0_2::run
