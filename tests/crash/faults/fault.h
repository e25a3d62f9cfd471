// One fault of the lane, all that are planned for one history, and what a run under each came to.
//
// A *level* runs one history under one fault and judges what is left: the store with opaque files
// (store_level.h), the whole Checkpointer (checkpointer_level.h).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/fault_file_system.h"

namespace holdfast::test::faults {

struct Fault {
  enum class Of { any, mutation, write };  // what `nth` counts, and what fails for ever
  Of of = Of::any;
  int nth = 1;
  int code = 0;
  FaultOptions options = {};

  void plant(FaultFileSystem& files) const;
  std::string text() const;  // "EIO at operation 12, for ever, after it"
};

// What went wrong, in sentences; all empty when the promise was kept.
struct Outcome {
  std::vector<Operation> log;
  int fired = 0;
  std::vector<std::string> lost;           // acknowledged, and not there or with other bytes
  std::vector<std::string> false_success;  // claimed, and not so
  std::vector<std::string> unreported;     // a failure that nobody was told of
  std::vector<std::string> stuck;          // training or a later start did not go on

  bool kept() const { return lost.empty() && false_success.empty() && unreported.empty() && stuck.empty(); }
};

class Level {
 public:
  virtual ~Level() = default;
  // `number` of the run: a level may judge every other one in more detail.
  virtual Outcome run(const std::optional<Fault>& fault, int number) = 0;
};

// Every fault that `clean`, the operations of a run without any, has room for: once at each operation, before
// it and, where it changes something, after it; for ever from each mutation on, before and after; for ever
// from each operation of any kind on, where a full or read-only disk is not the reason; and each write cut
// short. Of code c every stride(c)-th operation.
struct Thinning {
  int full = 1;      // EIO and short writes
  int no_space = 1;  // ENOSPC
  int others = 1;    // the rest
};
std::vector<Fault> faults_of(const std::vector<Operation>& clean, Thinning thinning);

struct Tally {
  int planned = 0;
  int fired = 0;
  int lost = 0;
  int false_success = 0;
  int unreported = 0;
  int stuck = 0;

  std::string text() const;  // "4,512 planned, 4,512 fired, 0 lost, 0 false successes, …"
};

// Runs the level without a fault, then under every one, and shows what went wrong as test failures.
void explore(Level& level, const char* name, Thinning thinning, Tally& tally);

// No file is synced a second time after a sync of it failed, and after a failed sync of the run directory
// `run` no checkpoint gets its name. Appends to outcome.false_success.
void check_syncs(const std::string& run, Outcome& outcome);

}  // namespace holdfast::test::faults
