#include "holdfast/interruption/file_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/interruption/notice_file.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kFileInterval = std::chrono::seconds(1);
// A half-written file is looked at again soon; a writer needs milliseconds.
constexpr Duration kSecondLook = std::chrono::milliseconds(100);
// A local disk answers at once. Longer than this the training thread does not wait at the start.
constexpr int kPatienceMs = 500;
// Polls without an answer until people hear of it: as many seconds.
constexpr int kHungAfter = 10;
// 20 looks of 100 ms: after 2 s the content counts, half written or not.
constexpr int kMostDoubts = 20;

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool is_absence(int code) { return code == ENOENT || code == ENOTDIR; }

const char* text_of(int code) {
  const char* const text = strerrordesc_np(code);
  return text != nullptr ? text : "unknown error";
}

// Returns the errno, or 0. Reads one byte more than a notice may have, to detect one that is too long.
int read_start(int descriptor, std::string& text) {
  text.resize(kMaxNoticeFile + 1);
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count = read(descriptor, &text[filled], text.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  text.resize(filled);
  return 0;
}

}  // namespace

FileSource::FileSource(const std::filesystem::path& path, Clock& clock) : clock_(clock) {
  if (path.empty()) throw UsageError("the notice file has an empty name");
  path_ = std::filesystem::absolute(path);  // the program may change its working directory
}

std::vector<Notice> FileSource::poll() {
  std::optional<Look> found = look();
  if (!found) return {};
  const Seen seen = found->seen;
  Content& content = found->content;
  if (seen != Seen::content) {
    doubtful_.reset();
    doubts_ = 0;
  }
  if (seen == Seen::unknown) return {};
  if (seen == Seen::absent) {
    // Made before anything is forgotten: without memory the next poll reports it again.
    std::vector<Notice> news = gone("the notice file is gone");
    believed_.reset();
    coming_ = false;
    return news;
  }
  // Compared by content and times: the same words in a new file are a new notice.
  if (believed_ == content) return {};

  NoticeFile file = parse_notice_file(content.text, clock_.now(), clock_.wall_now());
  // Until it reads the same twice, somebody may still be writing it.
  if (!file.whole && doubtful_ != content && doubts_ < kMostDoubts) {
    doubtful_ = std::move(content);
    ++doubts_;
    return {};
  }

  const bool coming = file.notice && file.notice->kind == NoticeKind::deadline;
  std::vector<Notice> news;
  if (!coming) news = gone("the notice file says that nothing is coming");
  if (file.notice) news.push_back(std::move(*file.notice));
  // From here on nothing allocates, so the news counts as reported.
  doubtful_.reset();
  doubts_ = 0;
  believed_ = std::move(content);
  coming_ = coming;
  return news;
}

Duration FileSource::interval() const { return doubtful_ ? kSecondLook : kFileInterval; }

std::vector<Notice> FileSource::gone(const char* how) const {
  if (!coming_) return {};
  return {{"file", NoticeKind::withdrawn, std::nullopt, how}};
}

std::optional<FileSource::Look> FileSource::look() {
  if (!looking_) {
    try {
      looking_.emplace([path = path_] {
        try {
          return read_file(path);
        } catch (const std::exception&) {  // no memory
          return Look();
        }
      });
    } catch (const std::system_error& error) {
      say_once("is not read, because no thread can be made: " + std::string(error.what()));
      return Look();
    }
    for (int ms = 0; ms < kPatienceMs && !looking_->ready(); ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (!looking_->ready()) {
    if (++unanswered_ == kHungAfter) say_once("cannot be read: its file system does not answer");
    return std::nullopt;
  }
  Look look = looking_->take();
  looking_.reset();
  unanswered_ = 0;
  if (!look.remark.empty()) say_once(look.remark);
  if (look.seen == Seen::content) said_.clear();  // the next problem is worth a log line again
  return look;
}

FileSource::Look FileSource::read_file(const std::filesystem::path& path) {
  const auto refused = [&](int code) -> Look {
    if (!is_absence(code)) return {.remark = "cannot be read: " + std::string(text_of(code))};
    struct stat folder {};
    const std::filesystem::path parent = path.parent_path();
    // A missing folder is often a misspelt one, so it is worth a line; a missing file is the normal case.
    const bool misspelt = stat(parent.c_str(), &folder) != 0;
    return {.seen = Seen::absent,
            .remark = misspelt ? "is watched, although there is no folder " + parent.native() + " yet" : ""};
  };

  // Links are followed, because mounted volumes of Kubernetes consist of them.
  struct stat status {};
  // Looks before it opens: opening a pipe or a device may block, or have an effect.
  if (stat(path.c_str(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode)) return {.remark = "is no plain file and is not read"};
  // The path may have become a pipe meanwhile; O_NONBLOCK keeps the open from blocking.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0) return refused(errno);
  if (fstat(file.get(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode)) return {};
  Look look{.seen = Seen::content};
  if (const int code = read_start(file.get(), look.content.text); code != 0) return refused(code);
  look.content.inode = status.st_ino;
  look.content.modified = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return look;
}

void FileSource::say_once(const std::string& what) {
  if (std::exchange(said_, what) != what) log_warning("the notice file {} {}", path_, what);
}

}}  // namespace holdfast::v0_2
