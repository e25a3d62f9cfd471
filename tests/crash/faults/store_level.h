// The store with opaque files of a few KiB: a start, saves with their run states, ledger lines and retention,
// in an empty volume or in a directory with a past (a damaged file, half-written ones of a dead attempt).
//
// Threads: one.
#pragma once

#include <functional>

#include "fault.h"
#include "support/memory_file_system.h"
#include "support/toy_format.h"

namespace holdfast::test::faults {

class StoreLevel final : public Level {
 public:
  // A bug planted between the store and the disk with its faults.
  using Between = std::function<std::unique_ptr<FileSystem>(FileSystem&)>;

  explicit StoreLevel(bool with_a_past, Between between = {});
  Outcome run(const std::optional<Fault>& fault, int number) override;

 private:
  static void judge(MemoryFileSystem& disk, std::int64_t acknowledged, const std::string& what,
                    Outcome& outcome);

  MemoryFileSystem past_;
  std::int64_t safe_ = -1;  // the newest good step in it
  Between between_;
};

}  // namespace holdfast::test::faults
