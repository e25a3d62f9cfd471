// System calls with Holdfast's conventions: EINTR is retried, failures throw IoError, descriptors are owned.
//
// Threads: any.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Owns a descriptor. The destructor closes it and ignores errors.
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

// Repeats `call` while a signal interrupts it. `call` returns -1 with errno.
template <class Call>
auto retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void fail(const char* operation, const std::string& path, int code = errno);

// Throws UsageError unless `name` is one path component that a directory can hold.
void check_component(const std::string& directory, std::string_view name);
std::string join(const std::string& directory, std::string_view name);

// Opens `name` beneath `directory` without following links; -1 with errno. Without openat2: O_NOFOLLOW.
int open_beneath(int directory, const char* name, int flags, mode_t mode, bool use_openat2);

// renameat2(NOREPLACE), or link+unlink if the call is missing or `use_renameat2` is off. False if `to`
// exists.
bool rename_noreplace(int directory, const std::string& path, const char* from, const char* to,
                      bool use_renameat2);

FileKind kind_of(mode_t mode);

// Settings of a File on an open descriptor.
struct FileSettings {
  OpenMode mode = OpenMode::read;
  bool direct = false;          // try O_DIRECT for writes
  bool uncached_direct = true;  // try O_DIRECT for uncached reads
  bool write_behind = true;     // write buffered pages back early
};
std::unique_ptr<File> make_posix_file(Descriptor descriptor, std::string path, FileSettings settings);

}}}  // namespace holdfast::v0_2::internal
