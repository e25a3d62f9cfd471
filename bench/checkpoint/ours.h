// Holdfast as a training loop uses it, through its public interface: a Checkpointer over a TrainState.
//
// Errors: Error if a save fails. Threads: the training thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "../shared/seconds.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "training_state.h"

namespace holdfast::bench {

struct SaveTimes {
  double blocked = 0;    // seconds that the training thread waited
  double durable = 0;    // seconds from the staged image to the acknowledgement
  double from_call = 0;  // seconds from the call to the acknowledgement; a peer's call takes as long
};

class Ours {
 public:
  Ours(TrainingState& state, std::filesystem::path directory, int keep = 2, int writer_threads = 2);

  // A save that copies the state inside after_step.
  SaveTimes save();
  // A save that copies beside a forward and backward pass, until before_update. `train` false: no pass
  // between, so before_update waits for the whole copy.
  SaveTimes save_beside_training(bool train = true);
  // One training step; with `save` its state is staged beside the next step.
  void step(bool save);
  // Waits until the newest save is durable. After a save beside the training, requires an update first.
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

}  // namespace holdfast::bench
