#include "holdfast/interruption/signal_source.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/interruption/internal/signal_latch.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::HeardSignal;
using internal::kHeardSignals;

std::string describe(int signal, const HeardSignal& heard) {
  const char* const abbreviation = sigabbrev_np(signal);
  std::string text = std::string("SIG") + (abbreviation != nullptr ? abbreviation : "?");
  if (heard.sender > 0) text += " from process " + std::to_string(heard.sender);
  if (signal == SIGINT && internal::at_a_terminal()) text += " (Ctrl-C again within 10 s leaves at once)";
  return text;
}

}  // namespace

bool stop_signal_came() noexcept {
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) {
    const HeardSignal heard = internal::heard_signal(i);
    if (heard.stops && heard.count != internal::consumed_signals(i)) return true;
  }
  return false;
}

SignalSource::SignalSource(Clock& clock, std::optional<Duration> grace,
                           const std::filesystem::path& system_root)
    : clock_(clock), grace_(term_grace(grace, system_root)), stops_(stop_signals()) {
  if (!internal::install_signal_handlers(stops_)) throw IoError("eventfd", "", errno);
  internal::begin_listening();
  // What an earlier source has reported is not news.
  for (std::size_t i = 0; i < seen_.size(); ++i) seen_[i] = internal::consumed_signals(i);
}

SignalSource::~SignalSource() {
  stop_listening();
  internal::remove_signal_handlers();
  // A source that is made later must hear what this one has not reported.
  for (std::size_t i = 0; i < seen_.size(); ++i) internal::consume_signals(i, seen_[i]);
}

void SignalSource::stop_listening() noexcept {
  if (listening_.exchange(false)) internal::end_listening();
}

int SignalSource::wake_descriptor() const { return internal::signal_event(); }

std::vector<Notice> SignalSource::poll() {
  // Empties the eventfd first, so that a later signal makes it readable again.
  eventfd_t ignored = 0;
  eventfd_read(internal::signal_event(), &ignored);
  std::vector<Notice> notices;
  // Stored only after all notices are made: if memory runs out, the next poll reports them.
  auto seen = seen_;
  auto told = told_;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const HeardSignal heard = internal::heard_signal(i);
    if (heard.count == seen[i]) continue;
    seen[i] = heard.count;
    // A stop is reported once; a second one can only shorten what is already decided.
    const bool repeated = std::exchange(told[i], true);
    Notice notice{.source = "signal",
                  .kind = NoticeKind::checkpoint_now,
                  .deadline = std::nullopt,
                  .text = describe(kHeardSignals[i], heard)};
    if (stops_.has(kHeardSignals[i])) {
      // The first signal of that kind fixed the deadline.
      if (repeated) continue;
      // Handlers use the machine's clock; `clock_` may be another.
      const auto arrival = SteadyTime(std::chrono::nanoseconds(heard.first_ns));
      const Duration age = Clock::real().now() - arrival;
      notice.kind = NoticeKind::stop;
      notice.guessed = grace_.guessed;
      notice.deadline = clock_.now() + (grace_.time - age);
    }
    notices.push_back(std::move(notice));
  }
  seen_ = seen;
  told_ = told;
  for (std::size_t i = 0; i < seen_.size(); ++i) internal::note_reported(i, seen_[i]);
  return notices;
}

}}  // namespace holdfast::v0_2
