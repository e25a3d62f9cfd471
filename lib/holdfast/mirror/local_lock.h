// What one process of a machine alone may do in a run directory at a time: bring its checkpoints home, and
// prepare its starts in a HOME. It keeps helpers on the same machine from taking HOME over from one another.
// It fences nothing: claims do that, also between these processes if the file system knows no locks.
//
//   LocalLock copies(file_system, directory, LocalLock::Work::copies);
//   if (!copies.hold()) …   // another process holds it; otherwise held until the end of `copies`
//
// Errors: none; what cannot be locked counts as held. Threads: one.
#pragma once

#include <filesystem>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"
#include "holdfast/io/folder_lock.h"

namespace holdfast { inline namespace v0_2 {

// The work is another process's, and so is what HOME_STATE.json tells about it.
class AnotherMirror : public RefusedError {
 public:
  using RefusedError::RefusedError;
};

class LocalLock {
 public:
  // copies: every mirror. starts: the mirror of `supervise`, for as long as it lives, and `fetch`.
  enum class Work { copies, starts };

  // `file_system` outlives this object.
  LocalLock(FileSystem& file_system, std::filesystem::path directory, Work work)
      : file_system_(file_system), directory_(std::move(directory)), work_(work) {}

  // False: another process holds it. Before the first attempt there is nothing to lock; so call it again
  // before each piece of work.
  bool hold();

 private:
  FileSystem& file_system_;
  const std::filesystem::path directory_;
  const Work work_;
  FolderLock lock_;
};

}}  // namespace holdfast::v0_2
