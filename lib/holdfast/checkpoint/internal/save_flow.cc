#include "holdfast/checkpoint/internal/save_flow.h"

#include <new>
#include <utility>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/caught.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

BegunSave SaveFlow::begin(bool asked_for) const {
  return std::make_shared<SaveHandle::Shared>(run_.step(), SaveStatus::staging, run_.time.boundary(),
                                              asked_for, run_.book);
}

const RunRecord& SaveFlow::record() {
  RunRecord& record = run_.started.record;
  boundary_.note_in(record);
  // Settled afterwards: a value whose save has failed meanwhile must not count as kept.
  partners_.add_values(measurements_);
  measurements_.settle();
  record.metrics = measurements_.recorded();
  return record;
}

bool SaveFlow::measure(const std::string& name, double value) {
  const std::int64_t step = run_.step();
  measurements_.settle();
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

void SaveFlow::tell_doubts() {
  if (run_.step() > run_.started.resumed.step && std::exchange(run_.started.after_loop, false)) {
    log_warning(
        "this run goes on from step {}, which finish() stored as it found the state: what the program "
        "changed between its last after_step() and finish() is in it, and is done a second time if the "
        "program does it now. Tell expect_last_step() before the loop, or use EpochOrder::epochs()",
        run_.started.resumed.step);
  }
  for (const std::string& text : run_.source.doubts()) {
    if (partners_.leads()) log_warning("the training state may be incomplete: {}", text);
  }
}

Staged SaveFlow::stage_all() {
  tell_doubts();
  return stage(Part::all);
}

// A copy of the snapshot, because the writer may read the old record. Both share the image's memory.
Staged SaveFlow::renewed(Staged image) {
  auto snapshot = std::make_shared<Snapshot>(*image.snapshot);
  put_run_record(snapshot->attributes, record());
  if (attribute_bytes(snapshot->attributes) > image.plan->attribute_capacity) return {};
  image.snapshot = std::move(snapshot);
  return image;
}

Staged SaveFlow::stage(Part part) {
  const RunRecord& now = record();
  const SteadyTime began = run_.clock.now();
  Staged staged = run_.stager.stage(now, part, partners_.plan());
  staged.copied = run_.clock.now() - began;
  return staged;
}

SaveFlow::Prepared SaveFlow::prepare(NextUpdate update) {
  tell_doubts();  // it counts the holders of tensors, and a list is one
  SnapshotSource& source = run_.source;
  const auto list = source.hold_list();
  Prepared prepared{.staged = stage(Part::early), .copy = nullptr};
  const SteadyTime began = run_.clock.now();
  const ImageLayout& layout = *prepared.staged.layout;
  const std::span<std::byte> image = prepared.staged.snapshot->arena->bytes();
  prepared.copy = update == NextUpdate::announced ? source.prepare_late(layout, image)
                                                  : source.prepare_independent(layout, image);
  prepared.staged.copied += run_.clock.now() - began;
  return prepared;
}

void SaveFlow::submit(Staged staged, const BegunSave& save, Duration waited) {
  // Held weakly, because the writer alone decides how long the image lives.
  snapshot_in_flight_ = staged.snapshot;
  in_flight_ = staged;
  in_flight_.snapshot = nullptr;
  WriteRequest request{.snapshot = staged.snapshot,
                       .plan = staged.plan,
                       .ancestry = run_.started.record.ancestry,
                       .copied = staged.copied,
                       .complete = {},
                       .save = save};
  partners_.join(request, staged);
  save->update([&](SaveFigures& figures) {
    figures.blocked += waited;
    figures.staged = staged.bytes;
  });
  staged = {};  // the writer alone holds the image
  save->staged(run_.clock.now());
  newest_ = run_.writer->submit(std::move(request));
  partners_.joined();
  newest_begun_ = save;
  run_.outlook.insured_by(save);
  measurements_.saved_by(save);
}

SaveHandle SaveFlow::fail(BegunSave save) noexcept {
  FailureKind kind = FailureKind::lasts;
  const std::string text = text_or_out_of_memory([&] {
    return "staging step " + std::to_string(run_.step()) +
           " failed: " + what_is_caught([&](const std::exception& error) {
             unsavable_.learn_from(error);
             if (may_pass(error)) kind = FailureKind::may_pass;
           });
  });
  // First: whoever the handle wakes must find the failure noted.
  run_.writer->note_failure(text, unsavable_.known() ? FailureKind::ends_run : kind);
  try {
    if (!save) save = begin(true);
    save->settle(SaveStatus::failed, text);
    return SaveHandle(std::move(save));
  } catch (const std::bad_alloc&) {
    return {};  // without memory there is no handle either: empty
  }
}

void SaveFlow::submitted(const BegunSave& save) noexcept {
  newest_ = SaveHandle(save);
  newest_begun_ = save;
  try {
    measurements_.saved_by(save);
    partners_.committed_from_shelf(save);
  } catch (const std::bad_alloc&) {
    log_debug("out of memory: a value measured at this step may be lost");
  }
  run_.outlook.insured_by(save);
}

bool SaveFlow::covered() const {
  const std::int64_t step = run_.step();
  if (newest_.step() == step) {
    const SaveStatus status = newest_.status();
    if (is_open(status) || status == SaveStatus::durable) return true;
  }
  // A resumed step lies in its checkpoint already, if the next start would find that one.
  return step == run_.started.resumed.step && run_.started.is_safe;
}

bool SaveFlow::safe() const {
  // A boundary that is covered without a save of its own is that of the resume, which is durable.
  return covered() && (newest_.step() != run_.step() || !is_open(newest_.status()));
}

Reached SaveFlow::reached() const {
  const bool is_covered = covered();
  const std::optional<Duration> writing = run_.writer->writing_for();
  // What is not durable yet still has its way home before it.
  return {.step = run_.step(),
          .durable = run_.newest_durable(),
          .home = run_.book->home_step(),
          .standing = {.covered = is_covered,
                       .writing = writing,
                       .going_home = run_.book->going_home(!is_covered || writing.has_value())}};
}

Staged SaveFlow::image_in_use() const {
  auto snapshot = snapshot_in_flight_.lock();
  // An image of shares is not the whole boundary.
  if (!snapshot || snapshot->step != run_.step() || in_flight_.shares) return {};
  Staged image = in_flight_;
  image.snapshot = std::move(snapshot);
  return image;
}

}}}  // namespace holdfast::v0_2::internal
