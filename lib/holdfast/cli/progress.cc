#include "holdfast/cli/progress.h"

#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v1 {

Progress::Progress(std::string doing, std::uint64_t bytes)
    : doing_(std::move(doing)), bytes_(bytes), start_(Clock::real().now()) {
  if (stderr_is_terminal()) thread_ = std::thread([this] { draw(); });
}

Progress::~Progress() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  if (!thread_.joinable()) return;
  thread_.join();
  clear_status_line();
}

std::string Progress::rate() const { return format_byte_rate(done_, Clock::real().now() - start_); }

void Progress::draw() {
  const MutexLock lock(mutex_);
  while (!wake_.wait_for(mutex_, std::chrono::milliseconds(200),
                         [this]() HOLDFAST_REQUIRES(mutex_) { return ended_; })) {
    const double share = bytes_ == 0 ? 1.0 : static_cast<double>(done_) / static_cast<double>(bytes_);
    show_status_line(doing_ + "  " + std::to_string(static_cast<int>(100 * share)) + " %  " + rate());
  }
}

}}  // namespace holdfast::v1
