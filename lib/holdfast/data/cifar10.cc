#include "holdfast/data/cifar10.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::int64_t kRecords = 10'000;
constexpr std::int64_t kRecordBytes = 3073;
constexpr std::int64_t kFileBytes = kRecords * kRecordBytes;
constexpr int kBatches = 5;
constexpr int kClasses = 10;
constexpr const char* kRemedy = "unpack the binary version, cifar-10-binary.tar.gz, again";

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0) return;
    if (errno == ENOENT) throw RefusedError("CIFAR-10: " + path_ + " is missing: " + kRemedy);
    throw IoError("open", path_, errno, "check that the file may be read");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::int64_t size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) throw IoError("fstat", path_, errno);
    return status.st_size;
  }

  // Returns the bytes read: fewer than asked for at the end of the file.
  std::int64_t read(std::uint8_t* to, std::int64_t bytes) const {
    std::int64_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::pread(fd_, to + done, static_cast<std::size_t>(bytes - done), done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError("pread at byte " + std::to_string(done), path_, errno);
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  std::string path_;
  int fd_;
};

void read_batch(const std::string& path, PictureSet& set, std::int64_t first) {
  const File file(path);
  const std::int64_t size = file.size();
  const std::int64_t got = size == kFileBytes ? file.read(set.record(first), kFileBytes) : size;
  if (got != kFileBytes) {
    const std::int64_t offset = got < kFileBytes ? got : kFileBytes;
    throw RefusedError("CIFAR-10: " + path + " has " + std::to_string(got) + " bytes instead of " +
                       std::to_string(kFileBytes) +
                       (got < kFileBytes ? ": it ends at byte " : ": it should end at byte ") +
                       std::to_string(offset) + "; " + kRemedy);
  }
  for (std::int64_t i = 0; i < kRecords; ++i) {
    if (set.label(first + i) < kClasses) continue;
    throw RefusedError("CIFAR-10: " + path + " has label " + std::to_string(set.label(first + i)) +
                       " at byte " + std::to_string(i * kRecordBytes) + " (record " + std::to_string(i) +
                       "), labels are 0 to 9; " + kRemedy);
  }
}

}  // namespace

PictureSplits read_cifar10(const std::string& folder) {
  std::error_code ignored;
  std::string base = folder;
  const std::string below = folder + "/cifar-10-batches-bin";
  if (!std::filesystem::exists(folder + "/data_batch_1.bin", ignored) &&
      std::filesystem::is_directory(below, ignored)) {
    base = below;
  }
  PictureSplits splits{PictureSet("cifar10-train", kBatches * kRecords, {}, kClasses),
                       PictureSet("cifar10-test", kRecords, {}, kClasses)};
  for (int batch = 0; batch < kBatches; ++batch) {
    read_batch(base + "/data_batch_" + std::to_string(batch + 1) + ".bin", splits.train, batch * kRecords);
  }
  read_batch(base + "/test_batch.bin", splits.test, 0);
  return splits;
}

}  // namespace holdfast::inline v1
