#include "holdfast/metrics/meter.h"

#include <cmath>

namespace holdfast { inline namespace v0_2 {
namespace {

// At least this many steps and seconds: fast steps average over more, slow ones over fewer.
constexpr std::size_t kSteps = 100;
constexpr Duration kAtLeast = std::chrono::seconds(5);

}  // namespace

Meter::Meter(const Clock& clock) : clock_(clock) {}

void Meter::begin() {
  last_ = clock_.now();
  if (window_.empty()) window_.push_back({.worked = worked_, .samples = 0});
}

void Meter::step(std::int64_t samples) {
  // The first step has no beginning, so its time says nothing.
  if (!last_) {
    begin();
    return;
  }
  const SteadyTime now = clock_.now();
  worked_ += now - *last_;
  last_ = now;
  window_.push_back({.worked = worked_, .samples = samples});
  samples_in_window_ += samples;
  while (window_.size() > kSteps + 1 && worked_ - window_[1].worked >= kAtLeast) {
    samples_in_window_ -= window_[1].samples;
    window_.pop_front();
  }
}

// Evaluations and pauses do not count as training time.
void Meter::pause() { last_.reset(); }

double Meter::per_second() const {
  if (window_.empty()) return 0;
  const double seconds = std::chrono::duration<double>(worked_ - window_.front().worked).count();
  return seconds > 0 ? static_cast<double>(samples_in_window_) / seconds : 0;
}

std::optional<Duration> Meter::time_left(double samples) const {
  const double speed = per_second();
  if (speed <= 0) return std::nullopt;
  const double seconds = samples / speed;
  // Above a century the number means nothing, and would not fit into a Duration.
  if (seconds > 3.2e9) return std::nullopt;
  return Duration(std::llround(std::fmax(seconds, 0) * 1e9));
}

}}  // namespace holdfast::v0_2
