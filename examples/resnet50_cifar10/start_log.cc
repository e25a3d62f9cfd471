#include "start_log.h"

#include <sys/resource.h>

#include <chrono>

#include "holdfast/base/log.h"

namespace example {
namespace {

constexpr int kSteps = 2;  // the first one, and one to compare it with

}  // namespace

StartLog::StartLog() : on_(holdfast::log_enabled(holdfast::LogLevel::debug)) {}

void StartLog::passed(const char* phase) const {
  if (!on_) return;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  holdfast::log_debug("start: {} {:.6f} s, {} page faults", phase, now.count(), used.ru_minflt);
}

void StartLog::begin(const holdfast::BeginEvent& /*event*/) { passed("resume"); }

void StartLog::step(const holdfast::StepEvent& /*event*/) {
  passed("update");
  if (++steps_ == kSteps) on_ = false;
}

}  // namespace example
