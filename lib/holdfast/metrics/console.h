// Progress for people, on standard error (standard output belongs to the result):
//
//   step 1,234/7,810  epoch 2/10  loss 1.2345  lr 0.0950  1,830 images/s  12m 05s left
//        saved step 1,200 (35s ago)
//   saved step 1,200: 188 MB in 210 ms (895 MB/s), training waited 21 ms, 1m 01s of work was at risk
//
// On a terminal the progress line is redrawn in place a few times a second. Elsewhere it is printed at the
// first step and then every 10 s. An evaluation prints its own line; a save does so at most every 10 s.
//
// Errors: none; a line without memory is dropped. Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

struct ConsoleOptions {
  std::optional<bool> terminal = {};                 // unset: whether standard error is a terminal
  Duration redraw = std::chrono::milliseconds(250);  // on a terminal; faster is hard to read
  Duration interval = std::chrono::seconds(10);      // elsewhere, and between saves; keeps logs short
};

// The progress line above.
HOLDFAST_EXPORT std::string progress_line(const StepEvent& event);
HOLDFAST_EXPORT std::string evaluation_line(const EvaluationEvent& event);
HOLDFAST_EXPORT std::string saved_line(const SavedEvent& event);

class HOLDFAST_EXPORT ConsoleProgress final : public MetricSink {
 public:
  explicit ConsoleProgress(const Clock& clock = Clock::real(), ConsoleOptions options = {});
  ~ConsoleProgress() override;  // calls finish()

  void step(const StepEvent& event) override;
  void evaluation(const EvaluationEvent& event) override;
  // Prints the last step if no printed line has shown it.
  void finish() override;

 private:
  static void show(const StepEvent& event, bool as_status) noexcept;
  static void show_saved(const SavedEvent& event) noexcept;

  const Clock& clock_;
  ConsoleOptions options_;
  bool terminal_;
  std::optional<SteadyTime> shown_;
  std::optional<SteadyTime> save_shown_;
  std::optional<StepEvent> unprinted_;  // the newest step that no printed line shows
};

}}  // namespace holdfast::v0_2
