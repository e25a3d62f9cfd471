// The trainer beside the mirror, as a child of this program: steps of fixed arithmetic, a state in memory, and
// the real Checkpointer. It prints one line of JSON at its end.
//
// Errors: as the Checkpointer. Threads: one for each process.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::bench {

struct TrainerOptions {
  std::string directory = {};  // empty: no checkpoints
  std::uint64_t state = 0;     // bytes
  double every = 0;            // seconds between two saves
  double seconds = 0;          // of training
  double limit = 0;            // MB/s of the volume; 0: as it is
  int threads = 1;             // that compute
};

// Steps, seconds; with a directory: saves, how long each blocked a step, and the age of the newest state that
// is durable here, and home (HOME_STATE.json): mean and worst, from the first one on.
int train(const TrainerOptions& options);

}  // namespace holdfast::bench
