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

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Errors reach the book as one line of text.
bool tells_of_no_space(std::string_view error) noexcept try {
  const auto names = [&](std::errc code) {
    return error.find(std::make_error_code(code).message()) != std::string_view::npos;
  };
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
  safe_step_ = step;
  safe_boundary_ = boundary;
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
