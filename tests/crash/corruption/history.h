// A run directory with four real checkpoints in it, made by two attempts of the real Checkpointer in memory,
// and everything that is known of them: the bytes, what lies where, and the state behind each.
//
// Threads: const methods from any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "holdfast/format/reader.h"
#include "support/memory_file_system.h"
#include "unit/checkpoint/rig.h"

namespace holdfast::test::corruption {

inline constexpr std::int64_t kSteps = 9;  // of the whole run; its checkpoints lie at 2, 4 (attempt 1), 6, 8

// Bytes that one digest covers, and what a reason calls them.
struct Part {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;  // "tensor model/weight (bytes …)"
};

struct Known {
  std::string name;
  std::int64_t step = 0;
  std::vector<std::byte> bytes;
  CheckpointIndex index;
  std::vector<Part> parts;  // after the index
  std::string state;
};

// What a reason must say when the file holds `bytes` instead: all of these texts.
std::vector<std::string> reasons(const Known& file, std::span<const std::byte> bytes);

class History {
 public:
  explicit History(MemorySource::Options state = {});

  MemoryFileSystem disk() const { return volume_.disk.copy(); }
  const std::vector<Known>& files() const { return files_; }  // newest first
  const Known& newest() const { return files_.front(); }
  const std::string& straight() const { return straight_; }  // `state=` of the uninterrupted run

 private:
  Volume volume_;
  std::vector<Known> files_;
  std::string straight_;
};

// Made once for all tests.
const History& history();

}  // namespace holdfast::test::corruption
