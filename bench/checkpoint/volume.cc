#include "volume.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/io/mount_information.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

volatile sig_atomic_t interrupted = 0;

int open_or_throw(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) throw IoError("open", path, errno);
  return descriptor;
}

struct statfs status_of(const std::filesystem::path& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) throw IoError("statfs", path, errno);
  return status;
}

}  // namespace

std::string file_system_of(const std::filesystem::path& directory) {
  std::error_code unknown;
  const auto mount = mount_of(std::filesystem::canonical(directory, unknown));
  return mount ? mount->type + " on " + mount->source : "unknown file system";
}

void check_directory(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    throw UsageError("there is no directory " + directory.string() +
                     "; make it, or name another (--directory)");
  }
  const FileSystemKind kind = kind_of_file_system(static_cast<std::uint64_t>(status_of(directory).f_type));
  if (kind.in_memory) {
    throw UsageError(directory.string() + " lies in memory (" + kind.name +
                     "), where nothing is durable; name a directory on a disk (--directory)");
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw UsageError("cannot write to " + directory.string() + "; name another directory (--directory)");
  }
}

std::uint64_t free_bytes(const std::filesystem::path& directory) {
  const struct statfs status = status_of(directory);
  return static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_bsize);
}

void require_room(const std::filesystem::path& directory, std::uint64_t bytes, const std::string& what_for) {
  const std::uint64_t free = free_bytes(directory);
  if (free >= bytes) return;
  throw UsageError(what_for + " needs " + megabytes(static_cast<double>(bytes)) + " of disk, " +
                   directory.string() + " has " + megabytes(static_cast<double>(free)) +
                   " left; make room, or name another directory (--directory)");
}

std::filesystem::path Scratch::folder(const std::string& name) const {
  std::filesystem::create_directory(path() / name);
  return path() / name;
}

void sync_path(const std::filesystem::path& path) {
  const int descriptor = open_or_throw(path, O_RDONLY);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0) throw IoError("fsync", path, error);
}

void make_durable(const std::filesystem::path& temporary, const std::filesystem::path& final) {
  sync_path(temporary);
  if (::rename(temporary.c_str(), final.c_str()) != 0) throw IoError("rename", final, errno);
  sync_path(final.parent_path());
}

void drop_cached(const std::filesystem::path& file) {
  const int descriptor = open_or_throw(file, O_RDONLY);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

void settle(const std::filesystem::path& directory) {
  const int descriptor = open_or_throw(directory, O_RDONLY | O_DIRECTORY);
  ::syncfs(descriptor);
  ::close(descriptor);
  // Our writer reports a save before it deletes the oldest file. The deletion must not happen in another
  // program's turn.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  stop_if_interrupted();
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a peer that died is an error with words
}

void stop_if_interrupted() {
  if (interrupted != 0) throw Interrupted{};
}

}  // namespace holdfast::bench
