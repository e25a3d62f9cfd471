// What Checkpointer::peek() answers: finds where resume() will begin, and keeps nothing but the head of that
// file. Changes nothing on any disk, and claims nothing.
//
// Errors: as StartWait and StartFinder; IoError and HomeError for HOME. Threads: the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/start/start_finder.h"
#include "holdfast/checkpoint/internal/start/start_wait.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The head of a checkpoint: its index has all that peek() tells.
struct CheckpointHead {
  std::string name;  // as in Start
  std::uint64_t file_bytes = 0;
  std::vector<std::byte> bytes;
};

// nullopt: a fresh start.
std::optional<CheckpointHead> find_head(Run& run, StartWait& wait, StartFinder& finder);
Peeked peeked_in(CheckpointHead head);

}}}  // namespace holdfast::v0_2::internal
