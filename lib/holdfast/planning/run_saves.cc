// The path of one save: begun, copied into the image, submitted, written, settled. There is one image,
// because a second one could be more than the program has memory for.
#include <algorithm>
#include <utility>

#include "holdfast/planning/internal/planted.h"
#include "holdfast/planning/run_core.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// After a save that failed, a pause tries the last one again after this.
constexpr Duration kLastSaveAgain = std::chrono::seconds(2);

}  // namespace

// This boundary is durable, or a save of it is open.
bool RunCore::covered() const {
  if (newest_step_ == step_ && (newest_stands_ || planted(Planted::counts_a_failed_save))) return true;
  return step_ == options_.resumed && options_.resumed_durable;
}

bool RunCore::safe() const {
  const bool open = in_flight_ && in_flight_->save.id == newest_id_;
  return covered() && !open_ && !open;
}

void RunCore::handle(const SaveCalled& event) {
  reach(event.step);
  call_ = Call::save;
  stop_returned_ = saved_here_ = false;
  if (!alone()) {  // all ranks save together, at the next vote
    wanted_ = true;
    return give_back();
  }
  if (close_copy()) return;
  save_now();
}

void RunCore::handle(const BestMeasured& event) {
  reach(event.step);
  call_ = Call::best;
  stop_returned_ = saved_here_ = false;
  if (!alone()) {
    wanted_ = wanted_ || (leads() && !covered());
    return give_back();
  }
  if (evaluation_.runs) {
    evaluation_.best_wanted = !planted(Planted::forgets_the_best_value);
    return give_back();
  }
  if (should_stop()) return give_back();  // the last save follows anyway
  if (close_copy()) return;
  save_now();
}

// From the image of an evaluation if there is one; memory may have changed since.
void RunCore::save_now() {
  if (covered()) {
    if (open_) open_->asked = true;
    return give_back();
  }
  const bool torn = memory_ != Memory::boundary || evaluation_.runs;
  if (torn && !image_.held && !planted(Planted::stages_memory_in_an_evaluation)) {
    wanted_ = wanted_ || memory_ == Memory::updating;  // asked for again once the update is over
    emit(Settle{++ids_, step_, Outcome::failed});
    return give_back();
  }
  begin({.asked = true, .blocking = true});
}

void RunCore::begin(const Wish& wish) {
  wish_ = wish;
  if (!leads() && votes_.agreed.alone) {
    wanted_ = false;
    emit(SendOwn{votes_.round});
    return proceed();
  }
  if (image_.state == Image::free || planted(Planted::writes_two_at_once)) return image_is_free();
  if (image_.held) {
    if (!open_) {  // else it is shelved
      open_ = Save{.id = ++ids_, .step = step_, .asked = wish.asked, .since = now_, .round = votes_.round};
      wanted_ = false;
      retry_last_ = now_ + kLastSaveAgain;
      schedule_.saved(boundary_, step_);
    }
    saved_here_ = true;
    submit();
    return proceed();
  }
  if (wish.blocking) {
    wait_ = Wait::image;
    wait_since_ = now_;
    return;
  }
  decline();
  proceed();  // the next step tries again
}

void RunCore::image_is_free() {
  if (!planted(Planted::repeats_a_failed_last_save_at_once)) retry_last_ = now_ + kLastSaveAgain;
  const int id = ++ids_;
  image_ = {.state = Image::copying, .id = id, .step = step_};
  open_ = Save{.id = id, .step = step_, .asked = wish_.asked, .since = now_, .round = votes_.round};
  emit(Stage{id, step_, wish_.copy, true});
  wait_ = Wait::staged;
}

void RunCore::handle(const Staged& event) {
  if (wait_ != Wait::staged) return;
  wait_ = Wait::none;
  if (!event.ok) {
    failing_ = failing_ || keeping_ == Keep::nothing || keeping_ == Keep::evaluation;
    if (open_) {
      settle(Outcome::failed);
    } else {
      release_image();
    }
    if (keeping_ != Keep::nothing) return end_keeping();  // a stop inside commits nothing newer
    schedule_.saved(now_, step_);                         // not again at every step
    wanted_ = false;
    return proceed();
  }
  image_.part = event.part;
  if (keeping_ != Keep::nothing) {
    image_.state = Image::whole;
    return image_is_kept();
  }
  blocked_ += now_ - open_->since;
  schedule_.saved(boundary_, step_);
  wanted_ = planted(Planted::serves_a_request_twice) && wanted_;
  saved_here_ = true;
  // The program may change the state after a stop.
  if (leaving_ && wish_.last && call_ == Call::step && alone()) image_.held = image_.kept = true;
  if (wish_.copy == Copy::beside_step && !event.closed) {
    image_.state = Image::beside_step;
    open_->state = Save::beside_step;
  } else {
    submit();
  }
  proceed();
}

void RunCore::submit() {
  Save& save = *open_;
  image_.state = Image::whole;
  newest_id_ = save.id;
  newest_step_ = save.step;
  newest_stands_ = true;
  insured_by(save.id);
  save.state = Save::waiting;
  if (superseded_ && !planted(Planted::ignores_a_newer_attempt)) return settle(Outcome::superseded);
  if (planted(Planted::acknowledges_before_durable)) emit(Settle{save.id, save.step, Outcome::durable});
  hand_over();
}

// The writer has one save at a time.
void RunCore::hand_over() {
  if (!open_ || open_->state != Save::waiting) return;
  if (writer_ != Writer::idle && !planted(Planted::writes_two_at_once)) return;
  open_->state = Save::writing;
  open_->since = now_;
  writer_ = Writer::writing;
  writers_save_ = open_->id;
  emit(Write{open_->id, image_.id, open_->step, open_->round});
  // A share stays: the ranks write the next save together.
  if (!options_.second_image || !leads() || image_.held || image_.part) return;
  in_flight_ = InFlight{.save = *open_, .image = image_};
  open_.reset();
  image_ = {};
}

// The image of the save in flight is that of this boundary.
void RunCore::bring_back() {
  if (!in_flight_ || image_.state != Image::free || in_flight_->image.step != step_) return;
  open_ = in_flight_->save;
  image_ = in_flight_->image;
  in_flight_.reset();
}

// The others need not wait for a save, or for this rank's share of it, that does not come.
void RunCore::decline() {
  if (!alone()) emit(Decline{votes_.round});
}

// The open save is over.
void RunCore::settle(Outcome outcome) {
  const Save save = *std::exchange(open_, std::nullopt);
  settled(save, outcome);
  if (image_.held) return;
  if (tried_again(save, image_, outcome)) {
    image_.held = true;
  } else if (outcome != Outcome::failed || !planted(Planted::leaks_the_image_of_a_failure)) {
    release_image();
  }
}

void RunCore::settled(const Save& save, Outcome outcome) {
  if (!alone() && save.state != Save::writing && save.round >= 0) emit(Decline{save.round});
  const bool durable = outcome == Outcome::durable;
  if (!(planted(Planted::acknowledges_before_durable) && durable)) emit(Settle{save.id, save.step, outcome});
  if (newest_id_ == save.id) newest_stands_ = durable;
  if (insurance_.save == save.id) insurance_.counts = durable;
  if (answer_.save == save.id) answer_.counts = durable;
  if (durable) durable_ = std::max(durable_, save.step);
}

// The last save is tried once more from the same image, because the others' shares are of that one.
bool RunCore::tried_again(const Save& save, const Image& image, Outcome outcome) const {
  return outcome == Outcome::failed && call_ == Call::finish && save.step == step_ && !end_.tried_again &&
         leads() && image.state == Image::whole && !image.part;
}

void RunCore::release_image() {
  image_.held = false;
  if (image_.state == Image::free) return;
  emit(FreeImage{image_.id});
  image_ = {};
}

void RunCore::handle(const SaveEnded& event) {
  // Only the answer to the write that is under way says what is durable.
  if (event.save != writers_save_) return;
  writers_save_ = 0;
  const bool beside = in_flight_.has_value();
  const Save save = beside ? in_flight_->save : *open_;
  if (event.outcome == Outcome::durable) {
    const Duration write = now_ - save.since;
    failing_ = false;
    ++commits_;
    if (!planted(Planted::never_learns_an_interval)) {
      schedule_.measured({.stall = blocked_ / commits_, .write = write});
    }
  } else if (event.outcome != Outcome::overtaken) {
    failing_ = true;
    wanted_ = wanted_ || (evaluation_.runs && save.asked);  // what asked for it still stands
    if (evaluation_.save == save.id) evaluation_.retry = now_ + kLastSaveAgain;
  }
  if (event.outcome == Outcome::superseded) superseded_ = true;
  writer_ = Writer::tidying;
  if (beside) {
    const Image image = std::exchange(in_flight_, std::nullopt)->image;
    settled(save, event.outcome);
    if (image_.state == Image::free && tried_again(save, image, event.outcome)) {
      image_ = image;
      image_.held = true;
    } else {
      emit(FreeImage{image.id});
    }
  } else {
    settle(event.outcome);
  }
  commit_from_evaluation();
}

void RunCore::handle(const WriterIdle& /*event*/) {
  writer_ = Writer::idle;
  hand_over();
}

// Withdraws a save that waits for its turn, so that its image becomes free. One that the program asked for
// stays if there is time for both. A share stays, because the others wait for it.
void RunCore::recall() {
  if (!leads()) return;
  if (!open_ || open_->state != Save::waiting) return;
  if (open_->asked && ends_.earliest({}) == kNever) return;
  if (planted(Planted::recalls_without_settling)) {
    open_.reset();
    return release_image();
  }
  settle(Outcome::overtaken);
}

// True: a copy beside the step was open, and the call goes on with CopyClosed.
bool RunCore::close_copy() {
  if (image_.state != Image::beside_step) return false;
  emit(CloseCopy{image_.id});
  wait_ = Wait::closed;
  return true;
}

// The save is made again.
void RunCore::drop_copy() {
  const bool shelved = open_ && open_->state == Save::shelved;
  if (image_.state != Image::beside_step && !shelved) return;
  wanted_ = true;
  settle(Outcome::overtaken);
}

void RunCore::handle(const CopyClosed& event) {
  if (wait_ != Wait::closed) return;
  wait_ = Wait::none;
  if (event.intact && keeping_ == Keep::evaluation) {
    open_->state = Save::shelved;
    image_.state = Image::whole;
  } else if (event.failed) {  // the next save is made when it is due
    failing_ = true;
    settle(Outcome::failed);
  } else if (event.intact || planted(Planted::submits_a_spoiled_copy)) {
    submit();
  } else {
    say(Remark::spoiled);
    drop_copy();
  }
  if (keeping_ != Keep::nothing) return image_to_keep();
  switch (call_) {
    case Call::save:
    case Call::best:
      return save_now();
    case Call::finish:
      return commit_last();
    default:
      return give_back();
  }
}

// A save of this call has begun, or will not.
void RunCore::proceed() {
  switch (call_) {
    case Call::step:
      if (paused_) {
        look_at_ = now_ + options_.look;
        wait_ = Wait::look;
      } else if (alone()) {
        give_back();
      } else {
        vote_or_return();
      }
      break;
    case Call::finish:
      if (open_ && open_->state == Save::shelved) settle(Outcome::overtaken);
      wait_since_ = now_;
      wait_ = leads() ? Wait::writer : Wait::outcome;
      if (!leads()) emit(AwaitOutcome{});
      break;
    case Call::evaluation_end:
      if (!image_.kept) let_image_go();
      give_back();
      break;
    default:
      give_back();
  }
}

}}}  // namespace holdfast::v0_2::run
