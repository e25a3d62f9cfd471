// Frees the blocks of deleted files beside the writer: on a volume mounted with `discard` that takes seconds
// for a large file, and the next save would wait for it.
//
// The names are gone already, so nothing depends on it: when the process ends first, the kernel frees the
// rest. Where the system gives no thread, or more than a few files wait, the blocks are freed at once.
//
// Errors: none. Threads: one at a time; the thread that it starts lives while there is something to free, and
// may outlive this object.
#pragma once

#include <memory>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

class BlockReaper {
 public:
  BlockReaper();
  ~BlockReaper();  // waits for nothing
  BlockReaper(const BlockReaper&) = delete;
  BlockReaper& operator=(const BlockReaper&) = delete;

  // Deletes `name`; false when it did not exist. Errors: IoError of the deletion itself.
  bool unlink(Directory& directory, const std::string& name);
  bool busy() const;
  // Waits until everything is freed: before ENOSPC is believed.
  void drain();

 private:
  struct State;
  void take(std::unique_ptr<HeldBlocks> blocks) noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace holdfast::inline v1::internal
