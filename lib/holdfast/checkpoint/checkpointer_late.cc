// Staging beside the next step. Parameters and optimizer slots stand still from one update to the next, so in
// a loop that announces its updates (before_update) they are copied while forward and backward compute, and
// the training waits only for what changes earlier.
//
// Such a *late snapshot* is open until the before_update() that closes it, or a save() or finish() that wants
// it, and is submitted only then. One that an update finds open is dropped, because nobody knows what
// happened to the state meanwhile; the next step is then staged whole. Whether something else has changed it
// is seen by samples, at every one.
//
// A device copies by itself (snapshot/device_copy.h). What it has set aside is independent of any update, so
// it is submitted at once, whether updates are announced or not, and arrives while the training goes on.
#include <exception>
#include <thread>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"

namespace holdfast { inline namespace v1 {
namespace {

// So many late snapshots of a run are copied at once and compared with live memory when they are closed,
// unless HOLDFAST_CHECK_STAGING wants all.
constexpr int kLateChecks = 2;
constexpr std::size_t kNamed = 3;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) {
    if (i > 0) text += ", ";
    text += "'" + names[i] + "'";
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

}  // namespace

void Checkpointer::State::before_update() {
  update_announced = true;
  update_open = true;
  if (late_stager.open()) [[unlikely]] {
    close_late();
  }
}

bool Checkpointer::State::checks_late() const { return check_staging || late_checked < kLateChecks; }

void Checkpointer::State::open_late(const BegunSave& save, const Waiting& waiting) {
  internal::Staged staged = stage(Part::early);
  auto copy = source.prepare_late(*staged.layout, staged.snapshot->arena->bytes());
  if (copy->independent()) {
    keeper.keep(copy, *staged.snapshot);
    return submit(std::move(staged), save, waiting.so_far());
  }
  const SteadyTime began = clock.now();
  const bool checked = checks_late();
  if (checked) {
    // What is compared when the update is announced must be older than anything that could have changed it: a
    // copy made beside the training would hold such a change, and agree with it.
    copy->run();
    copy->arrive();
  }
  staged.copied += clock.now() - began;
  late = std::move(staged);
  late_save = save;
  late_is_whole = checked;
  late_save->ended_by = std::this_thread::get_id();
  late_save->update([&](SaveFigures& figures) { figures.blocked = waiting.so_far(); });
  checked ? late_stager.keep(std::move(copy)) : late_stager.begin(std::move(copy));
}

void Checkpointer::State::submit_independent(const BegunSave& save, const Waiting& waiting) {
  internal::Staged staged = stage(Part::early);
  const SteadyTime began = clock.now();
  auto copy = source.prepare_independent(*staged.layout, staged.snapshot->arena->bytes());
  copy->run();  // also of what turned out to lie in host memory
  if (copy->on_its_way() && !copy->independent()) {
    throw Error("a copy that was to be independent of the next update is not");
  }
  staged.copied += clock.now() - began;
  keeper.keep(copy, *staged.snapshot);
  submit(std::move(staged), save, waiting.so_far());
}

// `ended`: no update follows, save() or finish() wants it now. What was copied inside after_step is then
// right whatever has changed since.
void Checkpointer::State::close_late(bool ended) {
  const Waiting waiting(time);
  internal::Staged staged = std::exchange(late, {});
  std::unique_ptr<LateCopy> copy = late_stager.take();  // goes before its image does
  staged.copied += waiting.so_far();
  BegunSave save = std::exchange(late_save, nullptr);
  const bool whole = std::exchange(late_is_whole, false);
  if (covered()) {  // an evaluation's end was announced, and its boundary committed
    return save->settle(SaveStatus::overtaken, {});
  }
  try {
    if (!ended || !whole) {
      if (const std::vector<std::string> changed = whole ? copy->changed() : copy->changed_samples();
          !changed.empty()) {
        source.copy_early(changed);
        late_checked = 0;  // more of them may change than the samples show
        save_wanted = true;
        staged = {};
        save->settle(SaveStatus::overtaken, {});
        log_warning(
            "{} changed between after_step and before_update (an optimizer that steps inside backward?): "
            "copied inside after_step from now on, and this save is made again",
            listed(changed));
        return;
      }
      if (whole) ++late_checked;
    }
    keeper.keep(copy, *staged.snapshot);
    submit(std::move(staged), save, waiting.so_far());
  } catch (...) {
    staging_failed(std::move(save));
  }
}

// save() and finish() come between an update and the next. What after_step() began to stage is the state of
// this step, and what the program has done to memory since is not.
void Checkpointer::State::settle_late() {
  if (!late_stager.open()) return;
  if (boundary || evaluating || disturbed || ranks) return drop_late();
  close_late(true);
}

// Late staging goes on afterwards. Only an update that came unannounced ends it.
void Checkpointer::State::drop_late() {
  if (!late_stager.open()) return;
  late_stager.take();
  late = {};
  late_is_whole = false;
  save_wanted = true;
  std::exchange(late_save, nullptr)->settle(SaveStatus::overtaken, {});
}

// The loop changed its habits: an update went by unannounced.
void Checkpointer::State::give_up_late_staging() {
  drop_late();
  if (std::exchange(late_staging, false)) {
    log_warning(
        "before_update() was not called before the update of step {}: the save in progress is dropped and "
        "made again, and from now on after_step copies the whole state",
        source.step() + 1);
  }
}

}}  // namespace holdfast::v1
