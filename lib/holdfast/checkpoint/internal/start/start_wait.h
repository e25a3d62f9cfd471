// Waits before a start looks at the run directory: for the required sources of notices, for the volume, and
// for what HOME (StartOptions::home) has to bring.
//
// Errors: the constructor throws UsageError for an unknown source; IoError (74) for the volume; those of
// mirror/start.h for HOME; Error with NoticeOptions::exit_code_interrupted if the program is told to stop
// meanwhile. Threads: the training thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StartWait {
 public:
  explicit StartWait(Run& run);

  void await_sight();
  void await_volume();
  // Claims the run in HOME, and fetches its newest checkpoint.
  void await_home();
  // False: there is no HOME, or `holdfast supervise --mirror` has prepared the directory.
  bool asks_home() const;
  // For calls of HOME: a stop ends them.
  holdfast::Pace pace() const;
  std::unique_ptr<Home> open(holdfast::Pace& pace) const;
  // Throws IoError if the volume has gone since. Call it before anything is made in the run directory.
  void check_mounted() const;

 private:
  bool is_prepared_by(const std::string& supervisors_home) const;

  Run& run_;
  const std::vector<std::string> required_;  // sources
  bool warned_ = false;                      // of the root file system
};

}}}  // namespace holdfast::v0_2::internal
