// Signals as notices. SIGTERM and SIGINT ask to stop: commit and leave within the grace. SIGUSR1 asks for a
// checkpoint and lets the run go on. Repeats change nothing.
//
// Handlers are installed with sigaction (SA_RESTART, so no system call of the program fails for them) and
// only note the signal and write to an eventfd. A handler that was there before is called after ours, and
// comes back when the last SignalSource ends, unless somebody has put another on top. A signal that was
// ignored before is heard all the same (shells ignore SIGINT for background jobs). A child process that has
// forked and not yet exec'd behaves as if nothing had been installed.
//
// Programs that link `holdfast_early_signals` have the handlers from a few milliseconds after exec, before
// main() and before any constructor; the first SignalSource adopts what they have heard. Their handlers stay
// until the process ends, so that a late signal cannot kill a program that has just finished its work.
//
// Second Ctrl-C within 10 s, where standard input or error is a terminal: the process ends at once with code
// 130, but never in the middle of a rename (base/forced_exit.h).
//
// Errors: the constructor throws UsageError for a wrong HOLDFAST_TERM_GRACE and IoError when there is no
// eventfd.
// Threads: as source.h says. Several at a time are allowed; each hears every signal.
#pragma once

#include <array>
#include <cstdint>

#include "holdfast/base/forced_exit.h"
#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

// Slurm, Docker and Kubernetes give 30 s between SIGTERM and SIGKILL, most others more.
inline constexpr Duration kDefaultTermGrace = std::chrono::seconds(25);

class SignalSource final : public Source {
 public:
  // `grace`: from the signal's arrival to the end of the process. HOLDFAST_TERM_GRACE beats it.
  explicit SignalSource(Clock& clock = Clock::real(), Duration grace = kDefaultTermGrace);
  ~SignalSource() override;
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  std::string_view name() const override { return "signal"; }
  std::vector<Notice> poll() override;
  // Only a net beneath the eventfd, which wakes at once.
  Duration interval() const override { return std::chrono::seconds(1); }
  int wake_descriptor() const override;

 private:
  Clock& clock_;
  Duration grace_;
  std::array<std::uint32_t, 3> seen_{};  // signals of each kind
  std::array<bool, 3> told_{};
};

}  // namespace holdfast::inline v1
