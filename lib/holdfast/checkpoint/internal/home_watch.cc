#include "holdfast/checkpoint/internal/home_watch.h"

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Lives as long as the thread.
class Looks {
 public:
  Looks(FileSystem& file_system, std::filesystem::path run_directory)
      : file_system_(file_system), run_directory_(std::move(run_directory)) {}

  void read() noexcept {
    record_.reset();
    try {
      const auto run = file_system_.open_directory(run_directory_, false);
      if (run) record_ = read_home_record(*run);
    } catch (const std::exception& error) {
      log_debug("what the mirror says cannot be read: {}", what_of(error));
    }
  }
  // What read() found, if it is news.
  void tell(const HomeWatch::Told& told) noexcept {
    if (!record_) return;
    try {
      std::string text = to_json(*record_);
      if (text != last_) told(*record_);
      last_ = std::move(text);
    } catch (const std::exception& error) {
      log_debug("what the mirror says is lost: {}", what_of(error));
    }
  }
  // A mirror that was seen once still counts while its record cannot be read.
  bool has_mirror() const { return record_.has_value() || !last_.empty(); }

 private:
  FileSystem& file_system_;
  const std::filesystem::path run_directory_;
  std::optional<HomeRecord> record_;
  std::string last_;
};

}  // namespace

void HomeWatch::start(FileSystem& file_system, const std::filesystem::path& run_directory, Told told,
                      Duration interval, Duration without_mirror) noexcept {
  try {
    const auto looks = std::make_shared<Looks>(file_system, run_directory);
    looks->read();
    looks->tell(told);
    thread_.start(interval, [=](DiskThread::Round& round) {
      // The run ends, and a look at the disk could only delay that.
      if (round.last()) return interval;
      round.in_disk([&] { looks->read(); });
      round.ask([&] { looks->tell(told); });
      return looks->has_mirror() ? interval : without_mirror;
    });
  } catch (const std::exception& error) {
    log_debug("this run will not know what is home: {}", what_of(error));
  }
}

}}}  // namespace holdfast::v0_2::internal
