#include "holdfast/interruption/signal_source.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/interruption/internal/signal_latch.h"

namespace holdfast::inline v1 {
namespace {

using internal::HeardSignal;
using internal::kHeardSignals;

std::string describe(int signal, const HeardSignal& heard) {
  std::string text = signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
  if (heard.sender > 0) text += " from process " + std::to_string(heard.sender);
  if (signal == SIGINT && internal::at_a_terminal()) text += " (Ctrl-C again within 10 s leaves at once)";
  return text;
}

}  // namespace

SignalSource::SignalSource(Clock& clock, Duration grace)
    : clock_(clock), grace_(env_duration(kEnvTermGrace).value_or(grace)) {
  if (!internal::install_signal_handlers()) throw IoError("eventfd", "", errno);
  for (std::size_t i = 0; i < seen_.size(); ++i) seen_[i] = internal::consumed_signals(i);
}

SignalSource::~SignalSource() {
  internal::remove_signal_handlers();
  for (std::size_t i = 0; i < seen_.size(); ++i) internal::consume_signals(i, seen_[i]);
}

int SignalSource::wake_descriptor() const { return internal::signal_event(); }

std::vector<Notice> SignalSource::poll() {
  // Emptied first: a signal that comes after this is seen by the next poll at the latest.
  eventfd_t ignored = 0;
  eventfd_read(internal::signal_event(), &ignored);
  std::vector<Notice> notices;
  // Kept only when all is told: without memory for the words, the next poll tells it.
  auto seen = seen_;
  auto told = told_;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const HeardSignal heard = internal::heard_signal(i);
    if (heard.count == seen[i]) continue;
    seen[i] = heard.count;
    const bool repeated = std::exchange(told[i], true);
    Notice notice{.source = "signal",
                  .kind = NoticeKind::checkpoint_now,
                  .deadline = std::nullopt,
                  .text = describe(kHeardSignals[i], heard)};
    if (kHeardSignals[i] != SIGUSR1) {
      if (repeated) continue;
      // The handler's clock is the machine's; ours may be another.
      const auto arrival = SteadyTime(std::chrono::nanoseconds(heard.first_ns));
      const Duration age = Clock::real().now() - arrival;
      notice.kind = NoticeKind::stop;
      notice.deadline = clock_.now() + (grace_ - age);
    }
    notices.push_back(std::move(notice));
  }
  seen_ = seen;
  told_ = told;
  return notices;
}

}  // namespace holdfast::inline v1
