#include "holdfast/metrics/console.h"

#include <new>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr const char* kGap = "  ";

std::string fixed(double value) { return format_log("{:.4f}", {value}); }

}  // namespace

std::string progress_line(const StepEvent& event) {
  std::string line = "step " + format_count(event.step);
  if (event.last_step) line += '/' + format_count(*event.last_step);
  line += kGap;
  line += "epoch " + format_count(event.epoch + 1);  // people count from one
  if (event.epochs) line += '/' + format_count(*event.epochs);
  line += kGap;
  line += "loss " + fixed(event.loss) + kGap + "lr " + format_number(event.learning_rate);
  line += kGap + format_number(event.images_per_s) + " images/s";
  if (event.time_left) line += kGap + format_duration(*event.time_left) + " left";
  line += kGap;
  if (event.durable_step) {
    line += "saved step " + format_count(*event.durable_step) + " (" + format_duration(event.durable_age) +
            " ago)";
  } else {
    line += "nothing saved yet";
  }
  return line;
}

std::string evaluation_line(const EvaluationEvent& event) {
  return format_log(
      "epoch {} evaluated: accuracy {:.2f} %, loss {:.4f} on {} pictures in {}",
      {static_cast<std::int64_t>(event.epoch + 1), event.accuracy * 100, event.loss,
       std::string_view(format_count(event.samples)), std::string_view(format_duration(event.time))});
}

std::string saved_line(const SavedEvent& event) {
  const Duration took = event.write + event.commit;
  return "saved step " + format_count(event.step) + ": " + format_bytes(event.bytes) + " in " +
         format_duration(took) + " (" + format_byte_rate(event.bytes, took) + "), training waited " +
         format_duration(event.blocked) + ", " + format_duration(event.risk_time) + " of work was at risk";
}

// The caller may decide, because standard error of a test or of a wrapper is not what a person sees.
ConsoleProgress::ConsoleProgress(const Clock& clock, ConsoleOptions options)
    : clock_(clock), options_(options), terminal_(options.terminal.value_or(stderr_is_terminal())) {}

ConsoleProgress::~ConsoleProgress() { finish(); }

// Without memory for a line it is dropped; the next one comes soon.
void ConsoleProgress::show(const StepEvent& event, bool as_status) noexcept {
  try {
    const std::string line = progress_line(event);
    as_status ? show_status_line(line) : print_line(line);
  } catch (const std::bad_alloc&) {
  }
}

void ConsoleProgress::step(const StepEvent& event) {
  const SteadyTime now = clock_.now();
  unprinted_ = event;
  // Saves may come every few seconds; the interval keeps the log short.
  if (event.saved && (!save_shown_ || now - *save_shown_ >= options_.interval)) {
    save_shown_ = now;
    show_saved(*event.saved);
  }
  if (shown_ && now - *shown_ < (terminal_ ? options_.redraw : options_.interval)) return;
  shown_ = now;
  show(event, terminal_);
  // On a terminal the last status is printed as a line at the end.
  if (!terminal_) unprinted_.reset();
}

// As in show(): a line without memory is dropped.
void ConsoleProgress::show_saved(const SavedEvent& event) noexcept {
  try {
    print_line(saved_line(event));
  } catch (const std::bad_alloc&) {
  }
}

void ConsoleProgress::evaluation(const EvaluationEvent& event) {
  try {
    print_line(evaluation_line(event));
  } catch (const std::bad_alloc&) {
  }
}

void ConsoleProgress::finish() {
  if (terminal_) clear_status_line();
  if (unprinted_) show(*unprinted_, false);
  unprinted_.reset();
}

}}  // namespace holdfast::v0_2
