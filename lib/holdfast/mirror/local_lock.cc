#include "holdfast/mirror/local_lock.h"

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

// On folders: a lock on a file would be the server's business on NFS, and exclude other machines. Not on the
// run directory itself, which a user's own script may lock.
bool LocalLock::hold() {
  if (lock_.held()) return true;
  try {
    const auto run = file_system_.open_directory(directory_, false);
    // The trainer makes it with its first claim, as its own user.
    const auto attempts = run ? run->open_directory(kAttemptsDirectory, false) : nullptr;
    if (!attempts) return true;
    std::filesystem::path folder = directory_ / kAttemptsDirectory;
    if (work_ == Work::copies) {
      attempts->open_directory(kMirrorDirectory, true);
      folder /= kMirrorDirectory;
    }
    return lock_.take(folder);
  } catch (const Error& error) {
    log_debug("no lock: {}", error.what());
    return true;
  }
}

}}  // namespace holdfast::v0_2
