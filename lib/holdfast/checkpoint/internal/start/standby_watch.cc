#include "holdfast/checkpoint/internal/start/standby_watch.h"

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Lives as long as the thread.
class StandbyLooks {
 public:
  StandbyLooks(FileSystem& file_system, std::filesystem::path run_directory)
      : file_system_(file_system), run_directory_(std::move(run_directory)) {}

  void read() noexcept {
    sign_.reset();
    try {
      const auto run = file_system_.open_directory(run_directory_, false);
      if (run) sign_ = read_standby_sign(*run);
    } catch (const std::exception& error) {
      log_debug("the sign of a standby cannot be read: {}", what_of(error));
    }
  }
  void tell(const StandbyWatch::Told& told) noexcept {
    const SteadyTime now = Clock::real().now();
    if (sign_ && sign_->unix_ms != last_) {
      // The first sign may be an old one.
      if (last_ != 0) changed_ = now;
      last_ = sign_->unix_ms;
    }
    const bool ready = sign_ && !sign_->checkpoint.empty() && changed_ && now - *changed_ < kStandbyYoung;
    if (ready == std::exchange(ready_, ready)) return;
    told(ready);
    if (!ready) return log_info("the standby of this run waits no more");
    log_info("a standby on {} has step {} at hand: when an end is announced, this run hands over to it",
             sign_->host, sign_->step);
  }

 private:
  FileSystem& file_system_;
  const std::filesystem::path run_directory_;
  std::optional<StandbySign> sign_;
  std::int64_t last_ = 0;              // unix_ms of the last sign; 0: none was seen
  std::optional<SteadyTime> changed_;  // when it was last seen to be renewed
  bool ready_ = false;
};

}  // namespace

void StandbyWatch::start(FileSystem& file_system, const std::filesystem::path& run_directory,
                         Told told) noexcept {
  try {
    const auto looks = std::make_shared<StandbyLooks>(file_system, run_directory);
    thread_.start(kStandbyRenews, [=](DiskThread::Round& round) {
      if (round.last()) return kStandbyRenews;
      round.in_disk([&] { looks->read(); });
      round.ask([&] { looks->tell(told); });
      return kStandbyRenews;
    });
  } catch (const std::exception& error) {
    log_debug("this run will not know of a standby: {}", what_of(error));
  }
}

}}}  // namespace holdfast::v0_2::internal
