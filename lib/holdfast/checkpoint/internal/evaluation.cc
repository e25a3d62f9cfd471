#include "holdfast/checkpoint/internal/evaluation.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How long to wait for an image from which an older step is written; two commits, if that is longer.
constexpr Duration kLongestWaitForImage = std::chrono::seconds(30);
constexpr char kDisturbed[] =
    "an evaluation began although the state could not be copied, and it was not brought to its end";

}  // namespace

void Evaluation::enter() {
  if (running()) throw UsageError("an EvaluationScope inside another one");
  run_.time.leave_step_out();
  // Before the program's code changes the memory that is being copied.
  late_.complete();
  running_ = true;
  unfinished_ = false;
  boundary_.owe_evaluation(true);
}

void Evaluation::keep_boundary() noexcept {
  // No image can be made of disturbed memory, and a durable step needs none.
  if (boundary_.disturbed() && saves_.safe()) return;
  try {
    image_ = image_of_boundary();
    offer();
  } catch (...) {
    image_ = {};
    saves_.fail(nullptr);
  }
}

// A save of this step that is in progress holds the boundary in its image already.
Staged Evaluation::image_of_boundary() {
  if (image_) return image_;  // an earlier evaluation here was broken off: memory may have changed since
  if (const std::string torn = why_torn(); !torn.empty()) throw Error(torn);
  if (Staged held = held_.image()) return held;
  if (boundary_.disturbed()) throw Error(kDisturbed);
  Staged image = saves_.image_in_use();
  if (!image) image = late_.image();
  if (image) {
    if (Staged renewed = saves_.renewed(image)) return renewed;
    // Gives its image back. With a single image the wait below could otherwise be for one that this thread
    // holds.
    late_.drop();
    image = {};
  }
  const Duration longest =
      std::max<Duration>(kLongestWaitForImage, 2 * run_.costs.costs().commit.value_or(Duration::zero()));
  if (!saves_.wait_for_image(longest, ImageFor::keeping)) {
    throw Error("the only image is still being written; a stop inside this evaluation commits nothing newer");
  }
  return saves_.stage_all();
}

// The image stays until the step is durable, because a write in flight may fail.
void Evaluation::offer() noexcept {
  if (!image_ || saves_.safe()) return;
  const SaveHandle& newest = saves_.newest();
  try {
    // The shelf commits the image only if a save of this step that has begun fails.
    shelf_.put(image_, newest.step() == run_.step() ? newest : SaveHandle(),
               partners_.lacking(*image_.layout));
  } catch (const std::exception& error) {
    log_warning("a notice during this evaluation commits nothing until the training thread reacts: {}",
                what_of(error));
  }
}

void Evaluation::tick(bool stop) {
  if (!running()) return;
  unfinished_ = unfinished_ || stop;
  schedule_.take_requests();
  if ((stop || schedule_.wanted() || run_.outlook.announced().deadline()) && commit()) schedule_.want(false);
}

void Evaluation::step_inside() noexcept {
  drop_image();
  held_.drop();
  if (running()) boundary_.owe_evaluation(true);
}

bool Evaluation::leave(bool thrown_out, bool together) {
  running_ = false;
  take_back();
  if (together) image_ = {};
  const bool save_best = std::exchange(best_wanted_, false);
  const bool broken_off = unfinished_ || thrown_out;
  if (broken_off && (thrown_out || !together)) boundary_.disturb();
  if (broken_off || boundary_.disturbed()) {
    boundary_.owe_evaluation(true);
    return false;
  }
  image_ = {};
  boundary_.owe_evaluation(false);
  return save_best;
}

void Evaluation::drop_image() noexcept {
  take_back();
  image_ = {};
}

void Evaluation::take_back() noexcept {
  const BegunSave save = shelf_.clear();
  if (!save) return;
  // Another thread began it, so its own boundary and step count, and not this moment.
  schedule_.saved(save->boundary, save->step);
  saves_.submitted(save);
  // It answers all that was asked for since the boundary, unless it has failed.
  const bool wanted_before = schedule_.wanted();
  schedule_.take_requests();
  if (!wanted_before && saves_.covered()) schedule_.want(false);
}

std::string Evaluation::why_torn() const {
  if (boundary_.updating() && !image_) {
    return "the update of step " + std::to_string(run_.step() + 1) +
           " has begun (before_update()) and no after_step() has ended it: memory holds no step";
  }
  const int rank = partners_.torn_rank();
  if (rank < 0) return {};
  return "rank " + std::to_string(rank) +
         " is inside an update (before_update() without after_step()), or in an evaluation that did not come "
         "to its end: not all ranks hold the same step";
}

void Evaluation::check_memory() const {
  if (const std::string torn = why_torn(); !torn.empty()) throw Error(torn);
  if ((running() || boundary_.disturbed()) && !image()) throw Error(kDisturbed);
}

void Evaluation::settle_late() {
  if (!late_.open()) return;
  // An evaluation's image holds this step already, or memory may have changed since the copy.
  if (image() || running() || boundary_.disturbed()) return late_.drop();
  late_.close(true);
}

}}}  // namespace holdfast::v0_2::internal
