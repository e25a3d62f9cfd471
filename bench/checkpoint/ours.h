// Holdfast as a training loop uses it, through its public face: a Checkpointer over a TrainState.
//
// Errors: Error when a save fails. Threads: the training thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "holdfast/checkpoint/checkpointer.h"
#include "training_state.h"

namespace holdfast::bench {

struct SaveTimes {
  double blocked = 0;    // seconds that the training thread waited
  double durable = 0;    // from the staged image to the acknowledgement
  double from_call = 0;  // from the call to the acknowledgement, which is what a peer's call takes
};

class Ours {
 public:
  Ours(TrainingState& state, std::filesystem::path directory, int keep = 2, int writer_threads = 2);

  // A save whose copy is made inside after_step.
  SaveTimes save();
  // One beside a forward and backward pass, which before_update ends. `train` false: no pass between, so
  // that before_update waits for the whole copy.
  SaveTimes save_beside_training(bool train = true);
  // One training step; with `save`, staged beside the next one.
  void step(bool save);
  // Until the newest save is durable. Requires an update after a save that was staged beside the training.
  void wait();

  std::uint64_t file_bytes() const { return file_bytes_; }  // of the last save
  std::filesystem::path newest() const { return newest_; }

 private:
  SaveTimes finish(SaveTimes times, double begin, double staged);

  TrainingState& state_;
  std::filesystem::path directory_;
  Checkpointer checkpointer_;
  SaveHandle handle_;  // of the newest save
  std::uint64_t file_bytes_ = 0;
  std::filesystem::path newest_;
};

double now();  // seconds of the steady clock

}  // namespace holdfast::bench
