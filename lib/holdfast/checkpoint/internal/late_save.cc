#include "holdfast/checkpoint/internal/late_save.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// This many copies of a run are made whole inside after_step() and compared with live memory when they are
// closed. HOLDFAST_CHECK_STAGING compares all.
constexpr int kChecks = 2;
constexpr std::size_t kShown = 3;  // changed tensors

}  // namespace

LateSave::LateSave(Run& run, SaveFlow& saves, SaveSchedule& schedule)
    : run_(run), saves_(saves), schedule_(schedule), check_all_(env_flag(kEnvCheckStaging).value_or(false)) {}

void LateSave::end() noexcept {
  if (save_) save_->settle(SaveStatus::failed, "dropped: the run ended before it was staged");
}

bool LateSave::checks() const { return check_all_ || checked_ < kChecks; }

void LateSave::begin(const BegunSave& save, const Waiting& waiting) {
  auto [staged, copy] = saves_.prepare(NextUpdate::announced);
  if (copy->independent()) {
    keeper_.keep(copy, *staged.snapshot);
    return saves_.submit(std::move(staged), save, waiting.so_far());
  }
  const SteadyTime began = run_.clock.now();
  const bool checked = checks();
  if (checked) {
    // The compared copy must be older than any forbidden change. A copy made beside the training could
    // contain the change, and would then agree with it.
    copy->run();
    copy->arrive();
  }
  staged.copied += run_.clock.now() - began;
  std::shared_ptr<PieceDigests> digests;
  // A checked copy is whole already. No thread copies it beside the training and digests it, so the writer
  // does.
  if (!checked) staged.snapshot->digests = digests = std::make_shared<PieceDigests>(*staged.snapshot);
  staged_ = std::move(staged);
  save_ = save;
  whole_ = checked;
  // This thread alone closes the save. If the program waits for the handle here, it would wait for itself.
  save_->ended_by = std::this_thread::get_id();
  save_->update([&](SaveFigures& figures) { figures.blocked = waiting.so_far(); });
  checked ? copier_.keep(std::move(copy)) : copier_.begin(std::move(copy), std::move(digests));
}

Staged LateSave::stage_independent() {
  auto [staged, copy] = saves_.prepare(NextUpdate::unannounced);
  const SteadyTime began = run_.clock.now();
  copy->run();  // includes tensors that turned out to lie in host memory
  if (copy->on_its_way() && !copy->independent()) {
    throw Error("a copy that was to be independent of the next update is not");
  }
  staged.copied += run_.clock.now() - began;
  keeper_.keep(copy, *staged.snapshot);
  return std::move(staged);
}

void LateSave::submit_independent(const BegunSave& save, const Waiting& waiting) {
  Staged staged = stage_independent();
  saves_.submit(std::move(staged), save, waiting.so_far());
}

void LateSave::close(bool ended) {
  const Waiting waiting(run_.time);
  Staged staged = std::exchange(staged_, {});
  std::unique_ptr<LateCopy> copy = copier_.take();  // destroyed before its image
  staged.copied += waiting.so_far();
  BegunSave save = std::exchange(save_, nullptr);
  const bool whole = std::exchange(whole_, false);
  if (saves_.covered()) {  // a notice in an evaluation has committed this boundary
    return save->settle(SaveStatus::overtaken, {});
  }
  try {
    if (!ended || !whole) {
      if (const std::vector<std::string> changed = whole ? copy->changed() : copy->changed_samples();
          !changed.empty()) {
        run_.source.copy_early(changed);
        checked_ = 0;  // compare whole copies again: more may change than the samples show
        schedule_.want();
        staged = {};
        save->settle(SaveStatus::overtaken, {});
        log_warning(
            "{} changed between after_step and before_update (an optimizer that steps inside backward?): "
            "copied inside after_step from now on, and this save is made again",
            name_list(changed, kShown));
        return;
      }
      if (whole) ++checked_;
    }
    keeper_.keep(copy, *staged.snapshot);
    saves_.submit(std::move(staged), save, waiting.so_far());
  } catch (...) {
    saves_.fail(std::move(save));
  }
}

void LateSave::drop() {
  if (!open()) return;
  // First, because the copy writes into the image.
  copier_.take();
  staged_ = {};
  whole_ = false;
  schedule_.want();
  std::exchange(save_, nullptr)->settle(SaveStatus::overtaken, {});
}

void LateSave::give_up() {
  drop();
  if (!std::exchange(works_, false)) return;
  log_warning(
      "before_update() was not called before the update of step {}: the save in progress is dropped and "
      "made again, and from now on after_step copies the whole state",
      run_.step() + 1);
}

Staged LateSave::image() {
  if (!open()) return {};
  copier_.arrive();
  if (whole_ || copier_.copy().changed_samples().empty()) return staged_;
  close();  // logs what has changed, and drops the save
  return {};
}

}}}  // namespace holdfast::v0_2::internal
