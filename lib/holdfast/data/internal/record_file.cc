#include "holdfast/data/internal/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

class Descriptor {
 public:
  // O_NONBLOCK: opening a pipe of that name must not block the start. It has no effect on files.
  Descriptor(std::string path, const RecordFormat& format)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ >= 0) return;
    if (errno == ENOENT) {
      throw RefusedError(std::string(format.what) + ": " + path_ + " is missing: " + format.remedy);
    }
    throw IoError("open", path_, errno, "check that the file may be read");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  std::int64_t size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) throw IoError("fstat", path_, errno);
    return status.st_size;
  }

  // Returns the number of bytes read, fewer than asked for at the end of the file.
  std::int64_t read(std::span<std::uint8_t> to) const {
    std::size_t done = 0;
    while (done < to.size()) {
      const ssize_t got = ::pread(fd_, to.data() + done, to.size() - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError("pread at byte " + std::to_string(done), path_, errno);
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return static_cast<std::int64_t>(done);
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

void read_record_file(const std::string& path, const RecordFormat& format, std::span<std::uint8_t> to) {
  const std::int64_t expected = format.records * format.record_bytes;
  if (std::cmp_not_equal(to.size(), expected))
    throw Error("a record file needs room for exactly its records");
  const Descriptor file(path, format);
  const std::int64_t size = file.size();
  // The size first: a file of the wrong size is not read at all.
  const std::int64_t got = size == expected ? file.read(to) : size;
  const auto refuse = [&](const std::string& what) {
    throw RefusedError(std::string(format.what) + ": " + path + " has " + what + "; " + format.remedy);
  };
  if (got != expected) {
    refuse(std::to_string(got) + " bytes instead of " + std::to_string(expected) +
           (got < expected ? ": it ends at byte " : ": it should end at byte ") +
           std::to_string(std::min(got, expected)));
  }
  // A label outside of the classes would index past the end of the loss.
  for (std::int64_t i = 0; i < format.records; ++i) {
    const int label = to[static_cast<std::size_t>(i * format.record_bytes)];
    if (label < format.classes) continue;
    refuse("label " + std::to_string(label) + " at byte " + std::to_string(i * format.record_bytes) +
           " (record " + std::to_string(i) + "), labels are 0 to " + std::to_string(format.classes - 1));
  }
}

}}}  // namespace holdfast::v0_2::internal
