#include "holdfast/io/internal/probe_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// An hour: no probe runs that long, and a server's clock may differ by minutes.
constexpr std::time_t kDeadAfter = 3600;  // seconds

// By process, so that two probes of one volume do not disturb each other.
std::string name_of_this() { return std::string(kProbePrefix) + std::to_string(getpid()); }

void empty(Directory& folder) {
  for (const DirectoryEntry& entry : folder.list()) {
    // The probe makes plain files only; a directory in there is somebody else's.
    if (entry.kind != FileKind::directory) folder.unlink(entry.name);
  }
}

// The kernel drops a lock when its process dies, so an unlocked folder is abandoned.
bool is_dead(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_mtime + kDeadAfter < std::time(nullptr);
}

}  // namespace

ProbeFolder::ProbeFolder(Directory& parent, const std::filesystem::path& parent_path)
    : path_(parent_path / name_of_this()), directory_(parent.open_directory(name_of_this(), true)) {
  lock_ =
      Descriptor(retry([&] { return open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!lock_) fail("open", path_.native());
  // Held until the process ends, however it ends: a folder without a lock was abandoned.
  flock(lock_.get(), LOCK_EX | LOCK_NB);  // may fail (NFS); the folder's age then decides
}

ProbeFolder::~ProbeFolder() {
  try {
    empty(*directory_);
    // rmdir() fails if a foreign file lies inside, so nothing else is ever removed.
    if (rmdir(path_.c_str()) != 0) fail("rmdir", path_.native());
  } catch (const Error& error) {
    // A destructor must not throw, and the report is complete without this.
    log_warning("could not remove {}: {}; delete it", path_, error.what());
  }
}

void remove_dead_probes(Directory& parent, const std::filesystem::path& parent_path) {
  for (const DirectoryEntry& entry : parent.list()) {
    if (!entry.name.starts_with(kProbePrefix) || entry.kind != FileKind::directory) continue;
    const std::filesystem::path path = parent_path / entry.name;
    const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // The lock that is_dead() takes ends with `folder`, after the removal.
    if (!folder || !is_dead(folder.get())) continue;
    try {
      const auto directory = parent.open_directory(entry.name, false);
      if (directory) empty(*directory);
      if (rmdir(path.c_str()) == 0) log_info("removed {}, which a killed probe had left", path);
    } catch (const Error& error) {
      // A leftover disturbs no measurement, so it ends no probe.
      log_debug("{} stays: {}", path, error.what());
    }
  }
}

}}}  // namespace holdfast::v0_2::internal
