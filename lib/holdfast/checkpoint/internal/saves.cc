#include "holdfast/checkpoint/internal/saves.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/bits.h"
#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"
#include "holdfast/checkpoint/internal/caught.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kShownChanges = 6;
// An image that the core has freed comes back within this, unless a device's copy hangs.
constexpr Duration kImageComesBack = std::chrono::seconds(30);
constexpr Duration kImageSlice = std::chrono::milliseconds(20);

}  // namespace

Saves::Saves(Run& run, OtherRanks& others, StepBoundary& boundary)
    : run_(run),
      others_(others),
      boundary_(boundary),
      check_all_(env_flag(kEnvCheckStaging).value_or(false)) {
  open_.reserve(16);
}

void Saves::lay_out() {
  layout_tried_ = true;
  if (laid_out_) return;
  if (!others_.writes()) {  // rank 0 alone writes the file, so this rank needs no plan of it
    run_.stager.check_source();
  } else {
    try {
      run_.stager.plan_ahead();
    } catch (const UsageError& error) {
      // No save has worked yet, so the program has made a state that cannot be saved.
      throw UnsavableError(error.what());
    }
    // Here, between two updates: page-locking an image takes as long as many copies, and must not happen
    // while the program captures a graph.
    run_.stager.make_image_ahead();
  }
  laid_out_ = true;
}

Saves::Image* Saves::find(int image) {
  const auto found =
      std::find_if(images_.begin(), images_.end(), [&](const Image& one) { return one.id == image; });
  return found != images_.end() ? &*found : nullptr;
}

Saves::Open* Saves::find_open(int save) {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.save == save; });
  return found != open_.end() ? &*found : nullptr;
}

void Saves::keep_last() {
  const MutexLock lock(mutex_);
  keeps_last_ = true;
}

// `boundary`: when the training stood there.
BegunSave Saves::begin_save(int save, std::int64_t step, SteadyTime boundary) {
  auto handle = std::make_shared<SaveHandle::Shared>(step, SaveStatus::staging, boundary, run_.book);
  const MutexLock lock(mutex_);
  // Another thread may have begun it meanwhile: a save has one handle.
  if (const Open* const known = find_open(save)) return known->handle;
  open_.push_back({.save = save, .handle = handle});
  newest_ = SaveHandle(handle);
  recent_[static_cast<std::size_t>(save) % recent_.size()] = {save, newest_};
  return handle;
}

SaveHandle Saves::newest() const {
  const MutexLock lock(mutex_);
  return newest_;
}

// Without memory there is no handle either: empty.
SaveHandle Saves::handle(int save, std::int64_t step) noexcept {
  {
    const MutexLock lock(mutex_);
    if (const Open* const open = find_open(save)) return SaveHandle(open->handle);
    const auto& recent = recent_[static_cast<std::size_t>(save) % recent_.size()];
    if (save > 0 && recent.first == save) return recent.second;
    if (newest_.step() == step) return newest_;
  }
  try {
    if (save <= 0) return {};
    BegunSave begun = begin_save(save, step, run_.time.boundary());
    const MutexLock lock(mutex_);
    unmeasured_.push_back(begun);
    return SaveHandle(std::move(begun));
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// One that ends at once. Without memory: null.
BegunSave Saves::make_save() noexcept {
  try {
    return std::make_shared<SaveHandle::Shared>(run_.step(), SaveStatus::staging, run_.time.boundary(),
                                                run_.book);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

SaveHandle Saves::of_start() noexcept {
  const Durable& start = run_.started.durable;
  if (start.step != run_.step()) return refused("there is nothing to save before the first step");
  try {
    // Nobody is told: it is no save of this attempt.
    auto handle = std::make_shared<SaveHandle::Shared>(start.step, SaveStatus::staging);
    handle->settle(SaveStatus::durable, start.checkpoint);
    return SaveHandle(std::move(handle));
  } catch (const std::bad_alloc&) {
    return {};
  }
}

SaveHandle Saves::refused(std::string_view why) noexcept {
  BegunSave save = make_save();
  if (save) save->settle(SaveStatus::failed, why);
  return SaveHandle(std::move(save));
}

SaveHandle Saves::failed(std::string_view why, FailureKind kind) noexcept {
  BegunSave save = make_save();
  try {
    throw Error(std::string(why));
  } catch (...) {
    fail(save, kind);
  }
  return SaveHandle(std::move(save));
}

run::Staged Saves::stage(const run::Stage& action, run::Call in_call) {
  const bool at_end = in_call == run::Call::finish;
  run::Staged answer{.image = action.image};
  BegunSave save;
  const SteadyTime called = run_.clock.now();
  bury();
  try {
    // Memory that an update has changed in part is no step.
    if (boundary_.updating()) throw Error("an update has begun, and no after_step() has ended it");
    {
      const MutexLock lock(mutex_);
      last_ = {};
    }
    // The core has freed it; a reader of the state, or a device, may still hold it for a moment.
    for (const SteadyTime began = run_.clock.now();
         others_.writes() && !run_.stager.wait_ready(kImageSlice);) {
      if (run_.clock.now() - began >= kImageComesBack) break;
    }
    if (action.for_save) save = begin_save(action.image, action.step, run_.time.boundary());
    lay_out();
    // The image records the numbers of this step, and late ones may say that its update was skipped.
    boundary_.settle();
    run_.started.record.after_loop = at_end;
    Staged staged;
    if (action.copy == run::Copy::beside_step) {
      staged = make_late(save, answer.closed);
    } else if (action.for_save && !at_end && action.copy == run::Copy::by_device) {
      staged = make_independent();
    } else {
      staged = make_whole(action.for_save ? others_.plan() : 0);
    }
    answer.part = staged.shares != nullptr;
    cost_ = staged.copied;
    if (save) {
      save->update([&](SaveFigures& figures) {
        figures.blocked = run_.clock.now() - called;
        figures.staged = staged.bytes;
      });
      others_.staged(save);
      measurements_.saved_by(save);
    }
    if (save && !copier_.open()) save->staged(run_.clock.now());
    const MutexLock lock(mutex_);
    Image* const place = find(0);
    if (place == nullptr) throw Error("a third image of the state");
    *place = {.id = action.image,
              .for_save = action.for_save,
              .staged = std::move(staged),
              .boundary = run_.time.boundary()};
    return answer;
  } catch (...) {
    if (copying_ == action.image && copier_.open()) {
      copier_.take();
      copying_ = 0;
      copied_for_ = nullptr;
    }
    answer.ok = false;
    if (!action.for_save && in_call == run::Call::step) {  // a save will fail for the same reason, and log it
      log_debug("the boundary of step {} is not kept", action.step);
      return answer;
    }
    std::string why = fail(save);
    const MutexLock lock(mutex_);
    not_staged_ = {.step = action.step, .why = std::move(why)};
  }
  return answer;
}

OtherRanks::NotStaged Saves::why_not_staged() const {
  const MutexLock lock(mutex_);
  return not_staged_;
}

std::string Saves::fail(BegunSave save, FailureKind kind) noexcept {
  std::string text = text_or_out_of_memory([&] {
    return "staging step " + std::to_string(run_.step()) +
           " failed: " + what_is_caught([&](const std::exception& error) {
             run_.unsavable.learn_from(error);
             if (may_pass(error)) kind = FailureKind::may_pass;
           });
  });
  // First: whoever the handle wakes must find the failure noted.
  if (run_.writer) {
    run_.writer->note_failure(text, run_.unsavable.known() ? FailureKind::ends_run : kind);
  } else {
    log_error("this rank's share of step {} could not be copied: {}", run_.step(), text);
  }
  if (!save) save = make_save();
  if (save) save->settle(SaveStatus::failed, text);
  return text;
}

const RunRecord& Saves::record() {
  RunRecord& record = run_.started.record;
  boundary_.note_in(record);
  // Settled afterwards: a value whose save has failed meanwhile must not count as kept.
  others_.add_values(measurements_);
  measure_saves();
  record.metrics = measurements_.recorded();
  return record;
}

void Saves::measure_saves() {
  {
    const MutexLock lock(mutex_);
    for (const BegunSave& save : unmeasured_) measurements_.saved_by(save);
    unmeasured_.clear();
  }
  measurements_.settle();
}

bool Saves::measure(const std::string& name, double value) {
  const std::int64_t step = run_.step();
  measure_saves();
  measurements_.add(name, step, value);
  LedgerLine line = run_.ledger.stamped("metric");
  run_.ledger.note(line.number("step", step).text("name", name).text("value", shortest_decimal(value)));
  bool best = false;
  for (const KeepPolicy& policy : run_.options.keep.policies()) {
    const auto* const wanted = std::get_if<KeepBest>(&policy);
    if (wanted == nullptr || wanted->metric != name) continue;
    best = best || measurements_.among_best(*wanted, step);
  }
  return best;
}

void Saves::tell_doubts() {
  if (run_.step() > run_.started.resumed.step && std::exchange(run_.started.after_loop, false)) {
    log_warning(
        "this run goes on from step {}, which finish() stored as it found the state: what the program "
        "changed between its last after_step() and finish() is in it, and is done a second time if the "
        "program does it now. Tell expect_last_step() before the loop, or use EpochOrder::epochs()",
        run_.started.resumed.step);
  }
  for (const std::string& text : run_.source.doubts()) {
    if (others_.leads()) log_warning("the training state may be incomplete: {}", text);
  }
}

Staged Saves::make_whole(std::int64_t plan) {
  tell_doubts();
  const RunRecord& now = record();
  const SteadyTime began = run_.clock.now();
  Staged staged = run_.stager.stage(now, Part::all, plan);
  staged.copied = run_.clock.now() - began;
  return staged;
}

void Saves::free_image(int image) noexcept {
  // The copy writes into it.
  if (copying_ == image && copier_.open()) {
    copier_.take();
    copying_ = 0;
    copied_for_ = nullptr;
    whole_ = false;
  }
  Freed freed;
  const MutexLock lock(mutex_);
  if (shelved_image_ == image && image > 0) {
    freed.copy = std::move(shelved_copy_);
    shelved_image_ = 0;
    shelved_ = false;
  }
  Image* const one = image > 0 ? find(image) : nullptr;
  if (one == nullptr) return;
  std::swap(*one, freed.image);
  Staged& staged = freed.image.staged;
  if (keeps_last_ && staged && !staged.shares) last_ = std::move(staged);
  const auto place =
      std::find_if(freed_.begin(), freed_.end(), [](const Freed& other) { return other.image.id == 0; });
  if (place != freed_.end()) *place = std::move(freed);
}

void Saves::bury() noexcept {
  std::array<Freed, 4> freed;
  const MutexLock lock(mutex_);
  if (freed_.front().image.id != 0) std::swap(freed, freed_);
}

bool Saves::write(const run::Write& action) noexcept {
  BegunSave save;
  Staged staged;
  bool has_all = false;
  SteadyTime boundary{};
  try {
    {
      const MutexLock lock(mutex_);
      if (ended_) return false;
      Image* const image = find(action.image);
      if (image == nullptr || !image->staged) throw Error("the image is gone");
      image->given_to = action.save;
      boundary = image->boundary;
      // The save of its own image records what was known when that was made.
      const bool own = image->for_save && action.save == image->id && !image->shelved;
      staged = !own && image->renewed ? image->renewed : image->staged;
      has_all = image->complete;
      if (Open* const open = find_open(action.save)) save = open->handle;
    }
    if (!save) {
      save = begin_save(action.save, action.step, boundary);
      save->update([&](SaveFigures& figures) { figures.staged = staged.bytes; });
      const MutexLock lock(mutex_);
      unmeasured_.push_back(save);
    }
    {
      const MutexLock lock(mutex_);
      if (Open* const open = find_open(action.save)) open->given = true;
    }
    save->staged(run_.clock.now());
    if (!others_.leads()) {
      others_.hand_share(action, std::move(staged), save);
      return true;
    }
    WriteRequest request{.snapshot = staged.snapshot,
                         .plan = staged.plan,
                         .ancestry = run_.started.record.ancestry,
                         .copied = staged.copied,
                         .complete = {},
                         .save = save};
    others_.join(request, staged, action.round, has_all);
    staged = {};  // the writer alone holds the image
    run_.writer->submit(std::move(request));
    return true;
  } catch (const std::exception& error) {
    const std::string text = text_or_out_of_memory([&] { return std::string(what_of(error)); });
    if (run_.writer) run_.writer->note_failure(text);
    if (save) save->settle(SaveStatus::failed, text);
    return false;
  }
}

void Saves::settle(const run::Settle& action) noexcept {
  BegunSave save;
  {
    const MutexLock lock(mutex_);
    for (Image& image : images_) {
      if (image.given_to == action.save) image.given_to = 0;
    }
    Open* const open = find_open(action.save);
    if (open == nullptr) return;
    if (!open->given) save = open->handle;
    if (open != &open_.back()) *open = std::move(open_.back());
    open_.pop_back();
  }
  if (!save) return;
  switch (action.outcome) {
    case run::Outcome::overtaken:
      return save->settle(SaveStatus::overtaken, {});
    case run::Outcome::superseded:
      return save->settle(SaveStatus::failed, run_.writer ? run_.writer->superseded_reason() : std::string());
    default:
      return save->settle(SaveStatus::failed, "dropped: the run ended before it was written");
  }
}

void Saves::end() noexcept {
  std::vector<Open> left;
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    left.swap(open_);
  }
  for (const Open& open : left) {
    if (!open.given) open.handle->settle(SaveStatus::failed, "dropped: the run ended before it was staged");
  }
}

// A copy of the snapshot, because the writer may read the old record. Both share the image's memory.
Staged Saves::renewed(Staged image) {
  auto snapshot = std::make_shared<Snapshot>(*image.snapshot);
  put_run_record(snapshot->attributes, record());
  if (attribute_bytes(snapshot->attributes) > image.plan->attribute_capacity) return {};
  image.snapshot = std::move(snapshot);
  return image;
}

void Saves::renew() noexcept {
  try {
    std::array<Staged, 3> known;
    {
      const MutexLock lock(mutex_);
      for (std::size_t i = 0; i < images_.size(); ++i) {
        if (images_[i].staged && images_[i].staged.snapshot->step == run_.step())
          known[i] = images_[i].staged;
      }
    }
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (!known[i] || known[i].shares) continue;
      Staged with_record = renewed(known[i]);
      const MutexLock lock(mutex_);
      if (images_[i].staged.snapshot == known[i].snapshot) images_[i].renewed = std::move(with_record);
    }
  } catch (const std::exception& error) {  // the record stays as it was
    log_debug("the record of a kept image stays as it was: {}", what_of(error));
  }
}

Staged Saves::kept(std::int64_t step) const {
  const MutexLock lock(mutex_);
  for (const Image& image : images_) {
    if (image.staged && !image.staged.shares && image.id != copying_ && image.staged.snapshot->step == step) {
      return image.staged;
    }
  }
  return last_ && last_.snapshot->step == step ? last_ : Staged();
}

// Nothing is put into an image while it is written: its digests may be computed already.
int Saves::complete(const Staged& kept, const std::function<void(const Snapshot& image)>& put_in) {
  const MutexLock lock(mutex_);
  for (Image& image : images_) {
    if (!image.staged || image.staged.snapshot != kept.snapshot) continue;
    if (!image.complete && image.given_to != 0) return 0;
    if (!image.complete) put_in(*image.staged.snapshot);
    image.complete = true;
    return image.id;
  }
  return 0;
}

void Saves::tell_changes() const {
  const Staged image = kept(run_.step());
  if (!image) return;
  const std::vector<std::string> names = run_.source.changed(image.snapshot.get());
  if (names.empty()) return;
  log_warning(
      "step {} is stored as after_step() left it, without what has changed since: {}. A run that goes on "
      "from there makes such changes again if they follow an epoch; all others belong before after_step()",
      image.snapshot->step, name_list(names, kShownChanges));
}

bool Saves::changed_unseen() const {
  const std::vector<std::string> names = run_.source.changed(nullptr);
  if (names.empty()) return false;
  log_error(
      "step {}: frozen tensors have changed in a way that nothing counts, such as data_ptr() or .data(): {}. "
      "Earlier checkpoints have digests of their earlier bytes; from now on they are stored",
      run_.step(), name_list(names, kShownChanges));
  return true;
}

bool Saves::changed_unseen_at_end() const {
  try {
    return changed_unseen();
  } catch (const UnsavableError&) {
    // No save can hold this state, so none can be wrong; the last save tells why, if there is one.
    return false;
  }
}

std::shared_ptr<const Snapshot> Saves::state() {
  // An image of this boundary spares another copy of the state.
  if (const Staged held = kept(run_.step()); !changed_unseen() && held && others_.alone()) {
    held.snapshot->wait_for_arrival();
    return held.snapshot;
  }
  return others_.part_of(run_.stager.stage(run_.started.record).snapshot);
}

Digest Saves::digest() { return state_digest(*state()); }

}}}  // namespace holdfast::v0_2::internal
