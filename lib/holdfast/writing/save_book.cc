#include "holdfast/writing/save_book.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Fewer show no spread.
constexpr std::int64_t kFewestWindows = 3;
// Boundaries of durable saves. If a mirror is further behind, the work at risk counts from the attempt's
// start.
constexpr std::size_t kBoundariesKept = 64;
// Later than any announced end, so that nobody waits for a mirror that fails or is dead.
constexpr Duration kNotSoon = std::chrono::hours(24);
constexpr Duration kSilence = std::chrono::minutes(2);

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Errors reach the book as one line of text.
bool tells_of_no_space(std::string_view error) noexcept try {
  const auto names = [&](std::errc code) {
    return error.find(std::make_error_code(code).message()) != std::string_view::npos;
  };
  // std::errc has no name for EDQUOT, so its text in the C library stands here.
  return names(std::errc::no_space_on_device) || error.find("quota exceeded") != std::string_view::npos;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace

void SaveBook::open(std::int64_t step, SteadyTime now) {
  boundary(step);
  const MutexLock lock(mutex_);
  open_ = true;
  began_ = now;
  safe_step_ = step;
  safe_boundary_ = now;
  safe_since_ = now;
  home_boundary_ = now;
}

void SaveBook::blocked(Duration time) noexcept {
  const MutexLock lock(mutex_);
  known_.blocked += time;
}

void SaveBook::window(Duration longer) noexcept {
  const double seconds = std::chrono::duration<double>(longer).count();
  const MutexLock lock(mutex_);
  ++windows_;
  longer_ += seconds;
  longer_squared_ += seconds * seconds;
}

// An older step than all that are kept counts from the start of this attempt.
SteadyTime SaveBook::boundary_of(std::int64_t step) const {
  const auto found = std::find_if(boundaries_.rbegin(), boundaries_.rend(),
                                  [&](const auto& saved) { return saved.first <= step; });
  return found == boundaries_.rend() ? began_ : found->second;
}

void SaveBook::home(const HomeNews& news) noexcept {
  {
    const MutexLock lock(mutex_);
    home_ = news;
    waiting_since_ = clock_.now();
    if (news.of_this_attempt) home_boundary_ = boundary_of(news.step);
  }
  home_moved_.notify_all();
}

void SaveBook::no_more_news() noexcept {
  {
    const MutexLock lock(mutex_);
    no_more_news_ = true;
  }
  home_moved_.notify_all();
}

Duration SaveBook::going_home(bool and_newer) const noexcept {
  const SteadyTime now = clock_.now();
  const MutexLock lock(mutex_);
  if (!home_) return Duration::zero();
  const bool all_is_home = home_->step >= safe_step_;
  if (all_is_home && !and_newer) return Duration::zero();
  if (home_->failing) return kNotSoon;
  if (all_is_home) return Duration::zero();
  // A mirror tells something at least once a copy, so this one is dead.
  if (now - waiting_since_ > 3 * home_->took + kSilence) return kNotSoon;
  // A copy that has begun is finished before the newest one's.
  const Duration left = std::max(safe_since_ + home_->took - now, Duration::zero());
  const bool older_first = home_->copying >= 0 && home_->copying < safe_step_;
  return older_first ? left + home_->took : left;
}

std::optional<std::int64_t> SaveBook::home_step() const noexcept {
  const MutexLock lock(mutex_);
  return home_ ? std::optional(home_->step) : std::nullopt;
}

std::optional<HomeFigures> SaveBook::home_figures(SteadyTime now) const {
  if (!home_) return std::nullopt;
  const std::int64_t here = step_.load(std::memory_order_relaxed);
  const std::int64_t steps = std::max<std::int64_t>(here - std::max<std::int64_t>(home_->step, 0), 0);
  return HomeFigures{.step = home_->step,
                     .risk_steps = steps,
                     .risk_time = steps > 0 ? now - home_boundary_ : Duration::zero(),
                     .took = home_->took,
                     .failing = home_->failing};
}

HomeStatus SaveBook::wait_home(std::int64_t step, std::chrono::nanoseconds limit) const {
  const MutexLock lock(mutex_);
  const auto is_home = [&]() HOLDFAST_REQUIRES(mutex_) {
    return home_ && home_->of_this_attempt && home_->step >= step;
  };
  home_moved_.wait_for(mutex_, std::max(limit, std::chrono::nanoseconds::zero()),
                       [&]() HOLDFAST_REQUIRES(mutex_) { return !home_ || no_more_news_ || is_home(); });
  if (!home_) return HomeStatus::no_mirror;
  return is_home() ? HomeStatus::home : HomeStatus::away;
}

void SaveBook::finished(Duration ending) noexcept {
  const SteadyTime now = clock_.now();
  const MutexLock lock(mutex_);
  // Only the first end counts.
  if (over_) return;
  over_ = true;
  known_.ending = ending;
  known_.elapsed = now - began_;
  put_risk(known_.risk_steps, known_.risk_time, now);
}

void SaveBook::put_risk(std::int64_t& steps, Duration& time, SteadyTime now) const {
  // Relaxed: a figure that is one step old does no harm.
  steps = std::max<std::int64_t>(step_.load(std::memory_order_relaxed) - safe_step_, 0);
  time = steps > 0 ? now - safe_boundary_ : Duration::zero();
}

RunFigures SaveBook::figures() const {
  const SteadyTime now = clock_.now();
  const MutexLock lock(mutex_);
  RunFigures figures = known_;
  if (!open_) return figures;
  if (!over_) {
    figures.elapsed = now - began_;
    put_risk(figures.risk_steps, figures.risk_time, now);
  }
  figures.home = home_figures(now);
  figures.most_risk_steps = std::max(figures.most_risk_steps, figures.risk_steps);
  figures.most_risk_time = std::max(figures.most_risk_time, figures.risk_time);
  if (windows_ >= kFewestWindows) {
    const auto count = static_cast<double>(windows_);
    // The sample variance from sums, which rounding may make negative. The uncertainty is two standard
    // errors of the sum.
    const double spread = std::max(longer_squared_ - longer_ * longer_ / count, 0.0) / (count - 1);
    figures.beside = StepsBeside{.windows = windows_,
                                 .lost = from_seconds(longer_),
                                 .uncertainty = from_seconds(2 * std::sqrt(count * spread))};
  }
  return figures;
}

void SaveBook::ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
                      SaveFigures& figures) noexcept {
  const SteadyTime now = clock_.now();
  const MutexLock lock(mutex_);
  if (outcome == SaveStatus::overtaken) ++known_.overtaken;
  if (outcome == SaveStatus::failed) ++known_.failed;
  if (outcome != SaveStatus::durable) return;
  ++known_.durable;
  known_.bytes += figures.bytes;
  put_risk(figures.risk_steps, figures.risk_time, now);
  known_.most_risk_steps = std::max(known_.most_risk_steps, figures.risk_steps);
  known_.most_risk_time = std::max(known_.most_risk_time, figures.risk_time);
  known_.last_step = step;
  known_.last = figures;
  // All was home until now, so the mirror's silence counts from this save on.
  if (home_ && home_->step >= safe_step_) waiting_since_ = now;
  safe_step_ = step;
  safe_boundary_ = boundary;
  safe_since_ = now;
  try {
    boundaries_.emplace_back(step, boundary);
    if (boundaries_.size() > kBoundariesKept) boundaries_.pop_front();
  } catch (const std::bad_alloc&) {  // the work at risk then counts from an older boundary
  }
}

void SaveBook::tell(const SaveEvent& event) noexcept {
  if (event.status == SaveStatus::failed && tells_of_no_space(event.error)) {
    const MutexLock counting(mutex_);
    ++known_.failed_for_space;
  }
  const MutexLock lock(telling_);
  // telling_, not mutex_: on_save may call figures().
  if (!on_save_) return;
  const auto complain = [&](const char* text) HOLDFAST_REQUIRES(telling_) {
    if (!std::exchange(complained_, true)) log_warning("on_save threw ({}); no save is lost by it", text);
  };
  const ProgramSignals::Here signals(program_signals_);
  try {
    on_save_(event);
  } catch (const std::exception& error) {
    complain(what_of(error));
  } catch (...) {
    complain("an exception of unknown type");
  }
}

void SaveBook::close() noexcept {
  // Waits for an on_save in progress: the program may destroy what that uses.
  const MutexLock lock(telling_);
  on_save_ = nullptr;
}

}}}  // namespace holdfast::v0_2::internal
