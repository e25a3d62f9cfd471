#include "holdfast/interruption/internal/sight.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/refusals.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// A service that is gone for hours must not fill the log.
constexpr Duration kSayAgain = std::chrono::minutes(10);
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr int kMostDoublings = 3;  // 1, 2, 4, 8 s: a notice of 30 s must not be missed
// One 403 may come from a service that restarts or throttles, and a notice may last only 30 s.
constexpr int kBelievedRefusals = 5;
constexpr Duration kRefusedAfterSight = std::chrono::seconds(15);

}  // namespace

// Until its first answer a source counts as blind since it was made: a notice may have come right then.
Sight::Sight(Clock& clock, std::string service, Duration blind_after)
    : clock_(clock), service_(std::move(service)), blind_after_(blind_after), last_sight_(clock.now()) {}

void Sight::saw() {
  std::optional<Duration> blind;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    ++figures_.polls;
    // Blind since the last sight, because a notice may have come right after it.
    if (streak_ > 0) figures_.blind += now - last_sight_;
    if (std::exchange(said_, false)) blind = now - last_sight_;
    warned_ = false;
    streak_ = 0;
    refusals_ = 0;
    seen_ = true;
    figures_.refused = false;
    figures_.why.clear();
    last_sight_ = now;
  }
  if (blind)
    log_info("{} answers again; a notice of the last {} is seen only now", service_, format_duration(*blind));
}

void Sight::missed(std::string_view why) { missed(why, false); }

void Sight::refused(std::string_view why) { missed(why, true); }

void Sight::missed(std::string_view why, bool refused) {
  Duration blind{};
  bool warn = false;
  std::string pause;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    ++figures_.polls;
    ++figures_.failures;
    ++streak_;
    refusals_ = refused ? refusals_ + 1 : 0;
    // Five in a row: the service is switched off, and asking often would change nothing.
    figures_.refused = refusals_ >= kBelievedRefusals;
    figures_.why = why;
    if (figures_.refused) pause = " every " + format_duration(interval_after_failure());
    blind = now - last_sight_;
    warn = !warned_ && (figures_.refused || blind >= blind_after_);
    // The first miss is said at once, later ones rarely.
    const bool say = !said_ && (!last_said_ || now - *last_said_ >= kSayAgain);
    if (!warn && !say) return;
    warned_ = warned_ || warn;
    said_ = true;
    last_said_ = now;
  }
  // Logging may block on a pipe, so it comes after the lock.
  if (warn) {
    log_warning(
        "blind for {}: {} cannot be asked for interruptions, and one would come unannounced: {}; retrying{}, "
        "training continues",
        format_duration(blind), service_, why, pause);
  } else {
    log_warning("{} cannot be asked for interruptions: {}; retrying, training continues", service_, why);
  }
}

bool Sight::failing() const {
  const MutexLock lock(mutex_);
  return streak_ > 0;
}

Duration Sight::interval_after_failure() const {
  // A service that answered before may come back soon. One that never did is asked rarely.
  if (figures_.refused) return seen_ ? kRefusedAfterSight : kAfterRefusal;
  return kFirstPause * (1 << std::min(streak_ - 1, kMostDoublings));
}

Duration Sight::interval(Duration usual) const {
  const MutexLock lock(mutex_);
  return streak_ == 0 ? usual : interval_after_failure();
}

SourceFigures Sight::figures() const {
  const MutexLock lock(mutex_);
  SourceFigures figures = figures_;
  if (streak_ > 0) figures.blind_now = clock_.now() - last_sight_;
  figures.blind += figures.blind_now;
  return figures;
}

}}}  // namespace holdfast::v0_2::internal
