#include "holdfast/cli/supervise/stall_watch.h"

#include <algorithm>

#include "holdfast/ledger/ledger_lines.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kLongestGap = std::chrono::seconds(30);  // lines come every 10 s
// The newest steps alone: a long run must not fill the memory, and its speed may change.
constexpr std::size_t kMostSteps = 512;

}  // namespace

void StallWatch::begin() {
  // The times of steps stay: they tell the limit of the next attempt, too.
  torn_.clear();
  counts_ = false;
  step_ = -1;
}

void StallWatch::hear(std::string_view text) {
  torn_ += text;
  std::string_view rest = torn_;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    hear_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  torn_ = std::string(rest);
}

void StallWatch::restart_at(Duration up) { moved_up_ = step_up_ = last_up_ = up; }

void StallWatch::hear_line(std::string_view text) {
  const LedgerMembers line(text);
  const auto time = line.time("up_ms", 100 * kYear);
  if (!time || *time < Duration::zero()) return;
  const Duration up = *time;
  const std::string event = line.text("event");
  const std::int64_t step = line.integer("step").value_or(-1);
  if (event == "start" || event == "go on") {
    counts_ = true;
    step_ = std::max(step_, step);
    restart_at(up);
  } else if (event == "pause" || event == "end") {
    counts_ = false;
  } else if (event == "progress" && counts_) {
    // A declared phase, such as an evaluation, takes no steps. A gap means lost lines or a stopped process.
    // Neither is a stall.
    const bool declared = line.has("phase");
    if (declared || up - last_up_ > kLongestGap) {
      step_ = std::max(step_, step);
      restart_at(up);
    } else if (step > step_) {
      const Duration each = (up - step_up_) / (step - step_);
      if (steps_.size() < kMostSteps) {
        steps_.push_back(each);
      } else {
        steps_[next_step_time_++ % kMostSteps] = each;
      }
      step_ = step;
      restart_at(up);
    }
    last_up_ = up;
  }
}

std::optional<Duration> StallWatch::standing() const {
  if (!counts_) return std::nullopt;
  // Between two records of the trainer: while a volume keeps its records away, nothing counts as a stall.
  return last_up_ - moved_up_;
}

Duration StallWatch::limit() const {
  if (limit_) return *limit_;
  if (steps_.empty()) return kLeast;
  // A copy: nth_element() changes the order, and the ring must keep its own.
  std::vector<Duration> sorted = steps_;
  const auto p95 = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) * 95 / 100);
  std::nth_element(sorted.begin(), p95, sorted.end());
  return std::max<Duration>(kLeast, *p95 * kSteps);
}

}}  // namespace holdfast::v0_2
