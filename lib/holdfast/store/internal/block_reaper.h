// Frees the blocks of deleted files on a thread of its own. On a volume mounted with `discard` that takes
// seconds for a large file, and the next save would wait.
//
// The names are already gone, so no decision depends on this thread: if the process ends first, the kernel
// frees the rest. If no thread can start, or if several files wait, the caller frees the blocks at once.
//
// Errors: none. Threads: one caller at a time. The reaper's thread runs only while blocks wait, and may
// outlive this object.
#pragma once

#include <memory>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class BlockReaper {
 public:
  BlockReaper();
  ~BlockReaper();  // does not wait
  BlockReaper(const BlockReaper&) = delete;
  BlockReaper& operator=(const BlockReaper&) = delete;

  // Deletes `name`; false if it did not exist. Errors: IoError from the deletion.
  bool unlink(Directory& directory, const std::string& name);
  bool busy() const;
  // Blocks until all blocks are free. Call it before you believe an ENOSPC.
  void drain();

 private:
  struct State;
  void take(std::unique_ptr<HeldBlocks> blocks) noexcept;

  std::shared_ptr<State> state_;
};

}}}  // namespace holdfast::v0_2::internal
