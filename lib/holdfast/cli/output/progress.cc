#include "holdfast/cli/output/progress.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kRedrawBar = std::chrono::milliseconds(200);
constexpr Duration kLines = std::chrono::seconds(10);   // elsewhere than at a terminal
constexpr Duration kSettled = std::chrono::seconds(1);  // before that, a time left would be a guess

}  // namespace

Progress::Progress(std::string doing, std::uint64_t bytes)
    : doing_(std::move(doing)), bytes_(bytes), start_(Clock::real().now()) {
  // On a thread of its own, because one read of a slow volume may take longer than the line may stand still.
  thread_ = std::thread([this] { draw(); });
}

Progress::~Progress() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  thread_.join();
  // After the join: the thread could draw once more.
  clear_status_line();
}

std::string Progress::rate() const { return format_byte_rate(done_, Clock::real().now() - start_); }

std::string Progress::text() const {
  const std::uint64_t done = done_;
  // Nothing of a file without bytes is left to do.
  const double share =
      bytes_ == 0 ? 1.0 : std::min(static_cast<double>(done) / static_cast<double>(bytes_), 1.0);
  std::string text = doing_ + "  " + std::to_string(static_cast<int>(100 * share)) + " %  " + rate();
  const Duration took = Clock::real().now() - start_;
  if (share > 0 && share < 1 && took > kSettled) {
    text +=
        "  " + format_duration(std::chrono::duration_cast<Duration>(took * ((1 - share) / share))) + " left";
  }
  return text;
}

void Progress::draw() {
  const bool redraws = stderr_is_terminal() && !log_is_json();
  const Duration interval = redraws ? kRedrawBar : kLines;
  const MutexLock lock(mutex_);
  while (!wake_.wait_for(mutex_, interval, [this]() HOLDFAST_REQUIRES(mutex_) { return ended_; })) {
    // In a log file a status line would be one line of carriage returns.
    redraws ? show_status_line(text()) : log_info(text());
  }
}

}}  // namespace holdfast::v0_2
