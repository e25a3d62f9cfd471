#include "holdfast/checkpoint/internal/boundary_saves.h"

#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kShownChanges = 6;
constexpr char kNoImage[] =
    "the save before is being written, and no image became free before the announced end";

}  // namespace

void BoundarySaves::lay_out() {
  layout_tried_ = true;
  if (laid_out_) return;
  try {
    run_.stager.plan_ahead();
  } catch (const UsageError& error) {
    // No save has worked yet, so the program has made a state that cannot be saved.
    throw UnsavableError(error.what());
  }
  // Here, between two updates: page-locking an image takes as long as many copies, and must not happen while
  // the program captures a graph.
  run_.stager.make_image_ahead();
  laid_out_ = true;
}

void BoundarySaves::save(Decision& decision, const Plan& plan) noexcept {
  if (run_.writer->superseded() || plan.move == Move::wait) return;
  const bool last_one = plan.is_last();
  const bool urgent = last_one || plan.move == Move::commit;
  if (plan.move == Move::stop || run_.outlook.announced().deadline()) limit_.lift();
  const std::int64_t step = run_.step();
  const SteadyTime now = run_.time.boundary();
  const Waiting waiting(run_.time);
  BegunSave save;
  try {
    if (!layout_tried_) lay_out();
    // Frees the image of an earlier last save.
    last_ = {};
    schedule_.choose_interval();
    if (last_one) {
      if (plan.too_late || saves_.covered()) return;
      if (!saves_.wait_for_image(Duration::max(), ImageFor::last_save)) {
        if (run_.last_save_too_late()) run_.outlook.warnings().too_late(saves_.reached());
        return;
      }
    } else {
      if (schedule_.wanted()) run_.outlook.warnings().no_room(step, plan);
      const bool now_or_later = urgent || (plan.room && (schedule_.wanted() || schedule_.due(now, step)));
      if (!now_or_later || !run_.stager.ready()) return;  // the next step tries again
    }
    lay_out();
    // The image records the numbers of this step, and late ones may say that its update was skipped.
    boundary_.settle();
    save = saves_.begin(schedule_.wanted() || urgent);
    // An urgent save is copied at once. A copy beside the training ends only at the next update, and there
    // may be no time for that.
    if (late_.works() && boundary_.update_announced() && !urgent && partners_.plan() == 0) {
      late_.begin(save, waiting);
    } else if (!last_one && run_.source.on_device()) {
      late_.submit_independent(save, waiting);
    } else {
      Staged staged = saves_.stage_all();
      if (last_one) last_ = staged;
      saves_.submit(std::move(staged), save, waiting.so_far());
    }
    decision.save = SaveHandle(save);
    schedule_.want(false);
    schedule_.saved(now, step);
    decision.saved = true;
  } catch (...) {
    decision.save = saves_.fail(std::move(save));
    schedule_.saved(now, step);  // not again at every step
    schedule_.want(false);
  }
}

SaveHandle BoundarySaves::save_now(const Waiting& waiting) noexcept {
  // The step is durable or on its way, and needs no second file.
  if (saves_.covered()) {
    saves_.ask_for_newest();
    return saves_.newest();
  }
  BegunSave save;
  try {
    if (!submit(save, waiting.began(), false)) {
      schedule_.want();
      save = saves_.begin(true);
      save->settle(SaveStatus::failed, kNoImage);
      log_warning("step {} is not saved now: {}; the next step tries again", run_.step(), kNoImage);
      return SaveHandle(std::move(save));
    }
    schedule_.want(false);
    schedule_.saved(waiting.began(), run_.step());
  } catch (...) {
    // Asked for again once the update is over.
    if (boundary_.updating()) schedule_.want();
    return saves_.fail(std::move(save));
  }
  return saves_.newest();
}

bool BoundarySaves::save_last() noexcept {
  BegunSave save;
  try {
    return submit(save, run_.clock.now(), true);
  } catch (...) {
    saves_.fail(std::move(save));
    // Not false: the time is not over. RunEnd waits for the writer, and tries once more.
    return true;
  }
}

// In an evaluation its image is the boundary; otherwise memory must be. False: no image became free in time.
// A second one could be more than the program has memory for.
bool BoundarySaves::submit(BegunSave& save, SteadyTime began, bool last_one) {
  Staged staged = image();
  last_ = {};
  const bool from_memory = !staged;
  if (from_memory) {
    evaluation_.check_memory();
    const auto use = last_one ? ImageFor::last_save : ImageFor::save;
    if (!saves_.wait_for_image(Duration::max(), use)) return false;
  }
  save = saves_.begin(true);
  if (from_memory) {
    run_.started.record.after_loop = last_one;
    staged = saves_.stage_all();
  } else if (last_one && !evaluation_.unsure()) {
    tell_changes(*staged.snapshot);
  }
  if (last_one) last_ = staged;
  saves_.submit(std::move(staged), save, run_.clock.now() - began);
  return true;
}

bool BoundarySaves::changed_unseen() const {
  const std::vector<std::string> names = run_.source.changed_unseen();
  if (names.empty()) return false;
  log_error(
      "step {}: frozen tensors have changed in a way that nothing counts, such as data_ptr() or .data(): {}. "
      "Earlier checkpoints have digests of their earlier bytes; from now on they are stored",
      run_.step(), name_list(names, kShownChanges));
  return true;
}

void BoundarySaves::look_again() {
  try {
    unseen_ = changed_unseen();
  } catch (const UnsavableError&) {
    // No save can hold this state, so none can be wrong; the last save tells why, if there is one.
  }
}

Staged BoundarySaves::image() const {
  if (unseen_) return {};
  if (Staged image = evaluation_.image()) return image;
  return partners_.holds_all() && holds_last() ? last_ : Staged();
}

// An image of shares holds only this rank's part of the state.
bool BoundarySaves::holds_last() const {
  return !unseen_ && last_ && !last_.shares && last_.snapshot->step == run_.step();
}

void BoundarySaves::tell_changes(const Snapshot& image) const {
  const std::vector<std::string> names = run_.source.changed_since(image);
  if (names.empty()) return;
  log_warning(
      "step {} is stored as after_step() left it, without what has changed since: {}. A run that goes on "
      "from there makes such changes again if they follow an epoch; all others belong before after_step()",
      image.step, name_list(names, kShownChanges));
}

std::shared_ptr<const Snapshot> BoundarySaves::state() const {
  const bool seen = !changed_unseen();
  // An image of this boundary spares another copy of the state.
  if (const Staged held = evaluation_.image(); seen && held && partners_.holds_all()) return held.snapshot;
  if (seen && holds_last()) return last_.snapshot;
  return partners_.part_of(run_.stager.stage(run_.started.record).snapshot);
}

Digest BoundarySaves::digest() const { return state_digest(*state()); }

}}}  // namespace holdfast::v0_2::internal
