// What the series of this lane share: the state of an uninterrupted run at every step, a run directory on a
// real file system, and the judge of what lies in it.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "batches.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/memory_source.h"

namespace holdfast::test::memory {

class Life {
 public:
  // `straight`: digests by step, which outlive this object.
  Life(std::filesystem::path directory, const std::vector<Digest>& straight)
      : directory_(std::move(directory)), straight_(straight) {}

  CheckpointerOptions options() const;
  // A new attempt, resumed.
  void start();
  void train(std::int64_t steps);
  void end() { checkpointer.reset(); }  // without finish()
  // A save that must succeed.
  void save(Point& point);

  // What a reader finds: at least what was acknowledged, and the right bytes.
  void judge(Point& point) const;
  void acknowledge(std::int64_t step) { acknowledged = std::max(acknowledged, step); }

  std::unique_ptr<MemorySource> source;
  std::unique_ptr<Checkpointer> checkpointer;
  std::int64_t acknowledged = -1;
  bool second_image = false;
  FileSystem* file_system = nullptr;  // the machine's
  std::vector<SaveEvery> every = {};

 private:
  std::filesystem::path directory_;
  const std::vector<Digest>& straight_;
};

std::vector<Digest> straight_run(std::int64_t steps);

}  // namespace holdfast::test::memory
