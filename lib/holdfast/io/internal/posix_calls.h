// System calls as Holdfast wants them: EINTR retried, failures thrown as IoError, descriptors owned.
//
// Threads: free functions; any thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

// Owns a descriptor. The destructor closes without reporting.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Calls until it is not interrupted. `call` returns -1 with errno.
template <class Call>
auto retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void fail(const char* operation, const std::string& path, int code = errno);

// UsageError unless `name` is a single component that a directory may hold.
void check_component(const std::string& directory, std::string_view name);
std::string join(const std::string& directory, std::string_view name);

// Opens `name` beneath `directory` without following any link; -1 with errno. `use_openat2` off: O_NOFOLLOW.
int open_beneath(int directory, const char* name, int flags, mode_t mode, bool use_openat2);

// renameat2(NOREPLACE), or link+unlink where that is missing or `use_renameat2` is off. False when `to`
// exists.
bool rename_noreplace(int directory, const std::string& path, const char* from, const char* to,
                      bool use_renameat2);

FileKind kind_of(mode_t mode);

// A File on an open descriptor. `direct`: try O_DIRECT for writing; `uncached_direct`: and for uncached
// reads.
struct FileSettings {
  OpenMode mode = OpenMode::read;
  bool direct = false;
  bool uncached_direct = true;
  bool write_behind = true;
};
std::unique_ptr<File> make_posix_file(Descriptor descriptor, std::string path, FileSettings settings);

}  // namespace holdfast::inline v1::internal
