// The real Checkpointer with its writer's thread, files of the real format, run states, ledger and losses: a
// start, three saves and the end, in an empty volume or in a directory with a past (a damaged newest file,
// half-written ones of a dead attempt).
//
// Threads: one.
#pragma once

#include <vector>

#include "fault.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"

namespace holdfast::test::faults {

class CheckpointerLevel final : public Level {
 public:
  explicit CheckpointerLevel(bool with_a_past);
  Outcome run(const std::optional<Fault>& fault, int number) override;

 private:
  CheckpointerOptions options(FileSystem& files) const;
  void train(FaultFileSystem& files, const MemoryFileSystem& disk, Outcome& outcome,
             std::int64_t& acknowledged, bool& told) const;
  void look_at(MemoryFileSystem& disk, std::int64_t acknowledged, const std::string& what,
               Outcome& outcome) const;
  void go_on(MemoryFileSystem& disk, const std::string& what, Outcome& outcome) const;

  mutable FakeClock clock_;
  MemoryFileSystem past_;
  std::int64_t safe_ = -1;  // the newest good step in it
  AttemptNumber dead_attempts_ = 0;
  std::int64_t last_step_;
  std::vector<Digest> states_;  // of an uninterrupted run, by step
};

}  // namespace holdfast::test::faults
