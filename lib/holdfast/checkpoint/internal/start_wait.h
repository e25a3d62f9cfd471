// Waits before a start looks at the run directory: for the required sources of notices, and for the volume.
//
// Errors: the constructor throws UsageError for an unknown source; IoError (74) for the volume; Error
// with NoticeOptions::exit_code_interrupted if the program is told to stop meanwhile. Threads: the training
// thread.
#pragma once

#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/run.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StartWait {
 public:
  explicit StartWait(Run& run);

  void await_sight();
  void await_volume();
  // Throws IoError if the volume has gone since. Call it before anything is made in the run directory.
  void check_mounted() const;

 private:
  Run& run_;
  const std::vector<std::string> required_;  // sources
};

}}}  // namespace holdfast::v0_2::internal
