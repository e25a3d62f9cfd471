// Ends a run that can no longer save (WritingOptions::give_up_unsaved), by a stop like any other: all ranks
// agree on it, and the last save is tried once more.
//
// Errors: the constructor throws UsageError for a malformed HOLDFAST_GIVE_UP_UNSAVED. Threads: the training
// thread.
#pragma once

#include <optional>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class UnsavedLimit {
 public:
  UnsavedLimit(Run& run, RunDriver& driver);

  // At a boundary after a save that failed.
  void look() noexcept;
  bool gave_up() const { return gave_up_; }

 private:
  std::optional<Duration> limit(bool lasts) const;

  Run& run_;
  RunDriver& driver_;
  const std::optional<Duration> chosen_;  // by the variable or the program
  const bool supervised_;
  std::int64_t asked_at_ = 0;  // failures when a last try was asked for
  bool gave_up_ = false;
};

}}}  // namespace holdfast::v0_2::internal
