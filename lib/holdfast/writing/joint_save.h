// The writer's view of a save that other processes take part in or wait for. Module ranks implements it,
// because this module knows no messages. "Others" are all ranks of the run except this process.
//
// The others wait for this process's first word. So for every such save exactly one of commit(),
// begin_alone() and decline() is called; decline() may also follow a begin_alone() that threw.
// Errors: see the methods. Threads: any, one at a time.
#pragma once

#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

// A save failed because of another rank.
class OtherRankError : public Error {
 public:
  OtherRankError(const std::string& what, bool refused)
      : Error(what, ExitCode::io_failed), refused_(refused) {}
  // True if that rank could not take part this time; nothing failed on its disk or in its process.
  bool refused() const { return refused_; }

 private:
  bool refused_;
};

class JointSave {
 public:
  virtual ~JointSave() = default;
  // Number of ranks that write the file. 1: this process writes alone, and the others are told.
  virtual int writers() const = 0;
  // Writes the file together with the others, and commits it. `wrote` is the duration of the write. Throws
  // OtherRankError and the store's exceptions.
  virtual CheckpointInfo commit(CheckpointStore& store, Snapshot& snapshot, Ancestry ancestry,
                                ImageWriterOptions how, Duration& wrote) = 0;
  // Tells the others that this process writes alone. Throws if that fails.
  virtual void begin_alone() = 0;
  // Logs that from here on this process writes the checkpoints of the attempt alone, because of `why`.
  virtual void log_alone_from_here(const OtherRankError& why) const noexcept = 0;
  // Tells the others that this save does not happen, and why.
  virtual void decline(const std::string& reason) noexcept = 0;
};

}}  // namespace holdfast::v0_2
