// Saves: copies that are made beside the training, and close before the next update.
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"
#include "holdfast/checkpoint/internal/saves.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// This many copies of a run are made whole inside after_step() and compared with live memory when they are
// closed. HOLDFAST_CHECK_STAGING compares all.
constexpr int kChecks = 2;
constexpr std::size_t kShown = 3;  // changed tensors

}  // namespace

bool Saves::checks() const { return check_all_ || checked_ < kChecks; }

// Parameters and optimizer slots stand still from one update to the next. So in a loop that calls
// before_update(), they are copied while forward and backward compute. Samples of every copy are compared
// with live memory (docs/own_loop.md).
Staged Saves::make_late(const BegunSave& save, bool& closed) {
  const std::int64_t plan = others_.plan();
  tell_doubts();  // it counts the holders of tensors, and a list is one
  const auto list = run_.source.hold(Hold::list);
  const RunRecord& now = record();
  const SteadyTime began = run_.clock.now();
  Staged staged = run_.stager.stage(now, Part::early, plan);
  auto copy = run_.source.copy(*staged.layout, staged.snapshot->arena->bytes(), Part::late);
  if (copy->independent()) {
    staged.copied = run_.clock.now() - began;
    keeper_.keep(copy, *staged.snapshot);
    closed = true;
    return staged;
  }
  whole_ = checks();
  if (whole_) {
    // The compared copy must be older than any forbidden change. A copy made beside the training could
    // contain the change, and would then agree with it.
    copy->run();
    copy->arrive();
  }
  staged.copied = run_.clock.now() - began;
  std::shared_ptr<PieceDigests> digests;
  // A checked copy is whole already. No thread copies it beside the training and digests it, so the writer
  // does.
  if (!whole_) staged.snapshot->digests = digests = std::make_shared<PieceDigests>(*staged.snapshot);
  // This thread alone closes the save. If the program waits for the handle here, it would wait for itself.
  save->ended_by = std::this_thread::get_id();
  copied_for_ = save;
  {
    const MutexLock lock(mutex_);
    copying_ = open_.back().save;
  }
  whole_ ? copier_.keep(std::move(copy)) : copier_.begin(std::move(copy), std::move(digests));
  return staged;
}

// The early part is copied here, and the device copies the rest by itself.
Staged Saves::make_independent() {
  const std::int64_t plan = others_.plan();
  tell_doubts();
  const auto list = run_.source.hold(Hold::list);
  const RunRecord& now = record();
  const SteadyTime began = run_.clock.now();
  Staged staged = run_.stager.stage(now, Part::early, plan);
  auto copy = run_.source.copy(*staged.layout, staged.snapshot->arena->bytes(), Part::independent);
  copy->run();  // includes tensors that turned out to lie in host memory
  if (copy->on_its_way() && !copy->independent()) {
    throw Error("a copy that was to be independent of the next update is not");
  }
  staged.copied = run_.clock.now() - began;
  keeper_.keep(copy, *staged.snapshot);
  return staged;
}

run::CopyClosed Saves::close_copy(int image, run::Call in_call) {
  run::CopyClosed answer{.image = image, .intact = false};
  bool tells = false;
  const bool ended = in_call != run::Call::update;  // no update has come yet
  const SteadyTime called = run_.clock.now();
  const bool evaluates = in_call == run::Call::evaluation_begin;
  const BegunSave save = evaluates ? copied_for_ : std::exchange(copied_for_, nullptr);
  const bool whole = whole_;
  std::unique_ptr<LateCopy> copy;  // destroyed before its image
  copying_ = 0;
  try {
    if (copier_.open()) {
      if (evaluates) copier_.arrive();
      copy = copier_.take();
    } else {
      const MutexLock lock(mutex_);
      copy = std::move(shelved_copy_);
      shelved_image_ = 0;
      shelved_ = false;
    }
    if (!copy) throw Error("the copy is gone");
    if (!ended || !whole) {  // in an evaluation the samples suffice
      const std::vector<std::string> changed = whole ? copy->changed() : copy->changed_samples();
      if (!changed.empty()) {
        run_.source.learn({.early = changed});
        checked_ = 0;  // compare whole copies again: more may change than the samples show
        log_warning(
            "{} changed between after_step and before_update (an optimizer that steps inside backward?): "
            "copied inside after_step from now on, and this save is made again",
            name_list(changed, kShown));
        return answer;
      }
      if (whole) ++checked_;
    }
    const MutexLock lock(mutex_);
    Image& one = *find(image);
    one.staged.copied += run_.clock.now() - called;
    one.shelved = evaluates;
    if (evaluates) {
      shelved_copy_ = std::move(copy);
      shelved_image_ = image;
      shelved_ = true;
    } else {
      keeper_.keep(copy, *one.staged.snapshot);
    }
    if (save) save->update([&](SaveFigures& figures) { figures.blocked += run_.clock.now() - called; });
    answer.intact = true;
    tells = !evaluates;
  } catch (...) {
    if (copier_.open()) copy = copier_.take();
    copied_for_ = nullptr;
    fail(save);
    answer.failed = true;
  }
  // Without the lock, because it calls on_save.
  if (tells && save) save->staged(run_.clock.now());
  return answer;
}

}}}  // namespace holdfast::v0_2::internal
