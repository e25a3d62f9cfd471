// How one request becomes a committed file: the other ranks' part in it, the check for numbers that are not
// finite, the image, the commit.
//
// Errors: what the store and JointSave throw. Threads: one, the writer's.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/writing/save_handle_shared.h"
#include "holdfast/writing/write_request.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class FileCommit {
 public:
  // All references outlive this object. While `limit_lifted` is true no speed limit applies.
  FileCommit(CheckpointStore& store, Clock& clock, const AsyncWriterOptions& options,
             const std::atomic<bool>& limit_lifted)
      : store_(store), clock_(clock), options_(options), limit_lifted_(limit_lifted) {}

  // `others_failed`: an earlier save failed because of another rank, so a save that all write together fails
  // here. What the commit cost goes to the options' cost model and to `handle`.
  CheckpointInfo commit(const WriteRequest& request, bool others_failed, SaveHandle::Shared& handle);

 private:
  CheckpointInfo write(const WriteRequest& request, Snapshot& sealed, Duration& wrote);

  CheckpointStore& store_;
  Clock& clock_;
  const AsyncWriterOptions& options_;
  const std::atomic<bool>& limit_lifted_;
  bool was_finite_ = true;  // the last state that was checked
  // The round of Recheck. Begins with the attempt's number, so that it rotates over short lives, too.
  std::optional<std::uint64_t> round_;
};

}}}  // namespace holdfast::v0_2::internal
