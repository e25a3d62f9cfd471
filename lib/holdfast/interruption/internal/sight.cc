#include "holdfast/interruption/internal/sight.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr Duration kSayAgain = std::chrono::minutes(10);
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr int kMostDoublings = 3;

}  // namespace

Sight::Sight(Clock& clock, std::string service)
    : clock_(clock), service_(std::move(service)), last_sight_(clock.now()) {}

void Sight::saw() {
  std::optional<Duration> blind;
  {
    const std::lock_guard lock(mutex_);
    const SteadyTime now = clock_.now();
    ++figures_.polls;
    if (streak_ > 0) figures_.blind += now - last_sight_;
    if (std::exchange(said_, false)) blind = now - last_sight_;
    streak_ = 0;
    last_sight_ = now;
  }
  if (blind)
    log_info("{} answers again; a notice of the last {} is seen only now", service_, format_duration(*blind));
}

void Sight::missed(std::string_view why) {
  {
    const std::lock_guard lock(mutex_);
    const SteadyTime now = clock_.now();
    ++figures_.polls;
    ++figures_.failures;
    ++streak_;
    if (last_said_ && now - *last_said_ < kSayAgain) return;
    last_said_ = now;
    said_ = true;
  }
  log_warning("{} cannot be asked for interruptions: {}; asking again, the training goes on", service_, why);
}

bool Sight::failing() const {
  const std::lock_guard lock(mutex_);
  return streak_ > 0;
}

Duration Sight::interval(Duration usual) const {
  const std::lock_guard lock(mutex_);
  return streak_ == 0 ? usual : kFirstPause * (1 << std::min(streak_ - 1, kMostDoublings));
}

SourceFigures Sight::figures() const {
  const std::lock_guard lock(mutex_);
  SourceFigures figures = figures_;
  if (streak_ > 0) figures.blind += clock_.now() - last_sight_;
  return figures;
}

}  // namespace holdfast::inline v1::internal
