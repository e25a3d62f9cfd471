#include "ours.h"

#include "holdfast/base/error.h"

namespace holdfast::bench {

Ours::Ours(TrainingState& state, std::filesystem::path directory, int keep, int writer_threads)
    : state_(state),
      directory_(std::move(directory)),
      checkpointer_(state.source(), {.directory = directory_,
                                     .every = {},
                                     .keep = KeepLast{keep},
                                     .notices = {.hear_signals = false},
                                     .writing = {.threads = writer_threads}}) {
  checkpointer_.resume();
  // The first saves plan the file, fault in the image, and compare late copies with live memory.
  save();
  for (int i = 0; i < 3; ++i) save_beside_training(false);
}

SaveTimes Ours::save() {
  checkpointer_.after_step();  // an earlier step may have announced an update; the next one is unannounced
  checkpointer_.request_save();
  const double begin = now();
  handle_ = checkpointer_.after_step().save;
  const double staged = now();
  return finish({.blocked = staged - begin}, begin, staged);
}

SaveTimes Ours::save_beside_training(bool train) {
  checkpointer_.before_update();
  checkpointer_.request_save();
  const double begin = now();
  handle_ = checkpointer_.after_step().save;
  const double left = now();
  if (train) state_.forward_backward();
  const double back = now();
  checkpointer_.before_update();
  const double staged = now();
  return finish({.blocked = left - begin + staged - back}, begin, staged);
}

SaveTimes Ours::finish(SaveTimes times, double begin, double staged) {
  wait();
  const double end = now();
  times.durable = end - staged;
  times.from_call = end - begin;
  newest_ = directory_ / handle_.checkpoint();
  file_bytes_ = std::filesystem::file_size(newest_);
  return times;
}

void Ours::step(bool save) {
  state_.forward_backward();
  checkpointer_.before_update();
  state_.update();
  if (save) checkpointer_.request_save();
  Decision decision = checkpointer_.after_step();
  if (decision.failure) throw Error(*decision.failure, ExitCode::io_failed);
  if (decision.saved) handle_ = decision.save;
}

void Ours::wait() {
  const SaveStatus status = handle_.wait();
  if (status == SaveStatus::durable) return;
  throw Error(status == SaveStatus::failed
                  ? handle_.error()
                  : "a save was given up for a newer one; HOLDFAST_LOG=warning says why",
              ExitCode::io_failed);
}

}  // namespace holdfast::bench
