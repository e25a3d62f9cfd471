// Progress for people, on standard error (standard output belongs to the result):
//
//   step 1,234/7,810  epoch 2/10  loss 1.2345  lr 0.0950  1,830 images/s  12m 05s left
//        saved step 1,200 (35s ago)
//
// On a terminal that line is redrawn in place a few times a second; elsewhere it is printed at the first step
// and then every 10 s. An evaluation is a line of its own, and so is a save, at most every 10 s:
//
//   saved step 1,200: 188 MB in 210 ms (895 MB/s), training waited 21 ms, 1m 01s of work was at risk
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/metrics/sink.h"

namespace holdfast::inline v1 {

struct ConsoleOptions {
  std::optional<bool> terminal = {};                 // unset: as standard error is
  Duration redraw = std::chrono::milliseconds(250);  // on a terminal
  Duration interval = std::chrono::seconds(10);      // elsewhere, and between saves
};

// The line above.
std::string progress_line(const StepEvent& event);
std::string evaluation_line(const EvaluationEvent& event);
std::string saved_line(const SavedEvent& event);

class ConsoleProgress final : public MetricSink {
 public:
  explicit ConsoleProgress(const Clock& clock = Clock::real(), ConsoleOptions options = {});
  ~ConsoleProgress() override;  // as finish()

  void step(const StepEvent& event) override;
  void evaluation(const EvaluationEvent& event) override;
  // Prints the last step if it has not been shown as a line.
  void finish() override;

 private:
  static void show(const StepEvent& event, bool as_status) noexcept;
  static void show_saved(const SavedEvent& event) noexcept;

  const Clock& clock_;
  ConsoleOptions options_;
  bool terminal_;
  std::optional<SteadyTime> shown_;
  std::optional<SteadyTime> save_shown_;
  std::optional<StepEvent> unprinted_;  // newest step that no printed line tells
};

}  // namespace holdfast::inline v1
