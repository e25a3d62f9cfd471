// Signals as notices. SIGTERM, SIGINT, SIGHUP, SIGUSR2 and SIGXCPU stop: commit and end within the grace
// period. SIGUSR1 asks for a checkpoint, and the run continues. HOLDFAST_STOP_SIGNALS selects
// (stop_signals.h).
//
// The handlers only record the signal and write to an eventfd. They chain to earlier handlers, and restore
// them when the last SignalSource ends. Link `holdfast_early_signals`: then the handlers exist milliseconds
// after exec, and every thread has a stack for them. Without that, a handler can corrupt memory of oneDNN's
// code. A second Ctrl-C within 10 s on a terminal ends the process at once (130), but never in the middle of
// a rename. docs/interruption_sources.md#signals has the details. term_grace.h has the grace period.
//
// Errors: the constructor throws UsageError for a malformed HOLDFAST_TERM_GRACE, and IoError without an
// eventfd. Threads: as source.h says. Several sources may exist at once; each hears every signal.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "holdfast/base/export.h"
#include "holdfast/base/forced_exit.h"
#include "holdfast/interruption/source.h"
#include "holdfast/interruption/stop_signals.h"
#include "holdfast/interruption/term_grace.h"

namespace holdfast { inline namespace v0_2 {

// True if a stop signal has arrived that no finished SignalSource has reported. For waits before a Monitor
// exists. False while no handler is installed. May be called from any thread.
HOLDFAST_EXPORT bool stop_signal_came() noexcept;

class HOLDFAST_EXPORT SignalSource final : public Source {
 public:
  // `grace`: from the signal's arrival to the end of the process. HOLDFAST_TERM_GRACE has priority. Without
  // either it is a guess, and so are the notices' deadlines. `system_root`: see term_grace.h.
  explicit SignalSource(Clock& clock = Clock::real(), std::optional<Duration> grace = {},
                        const std::filesystem::path& system_root = "/");
  ~SignalSource() override;
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;
  // Nobody acts on its notices any more. A later stop signal that no other source listens to ends the process
  // as it would without Holdfast, 15 s later. Idempotent; any thread.
  void stop_listening() noexcept;

  std::string_view name() const override { return "signal"; }
  std::vector<Notice> poll() override;
  // A safety net: the eventfd wakes the Monitor at once.
  Duration interval() const override { return std::chrono::seconds(1); }
  int wake_descriptor() const override;

 private:
  Clock& clock_;
  TermGrace grace_;
  StopSignals stops_;
  std::array<std::uint32_t, 6> seen_{};  // number of signals of each kind
  std::array<bool, 6> told_{};
  std::atomic<bool> listening_{true};
};

}}  // namespace holdfast::v0_2
