#include "holdfast/metrics/jsonl.h"

#include <cmath>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/metrics/buffer_writer.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// JSON has no nan and no inf; as texts they stay visible.
void write_number(BufferWriter& line, double value) {
  const std::string_view quote = std::isfinite(value) ? "" : "\"";
  line.text(quote).number(value).text(quote);
}

void write_saved(BufferWriter& line, const SavedEvent& saved) {
  const auto milliseconds = [&](const char* name, Duration value) {
    line.text(name);
    // Rounded to microseconds: more digits would only make the file longer.
    write_number(line, std::round(std::chrono::duration<double, std::micro>(value).count()) / 1e3);
  };
  line.text(",\"saved\":{\"step\":").integer(saved.step);
  line.text(",\"bytes\":").integer(saved.bytes);
  milliseconds(",\"blocked_ms\":", saved.blocked);
  milliseconds(",\"staging_ms\":", saved.staging);
  milliseconds(",\"write_ms\":", saved.write);
  milliseconds(",\"commit_ms\":", saved.commit);
  line.text(",\"risk_steps\":").integer(saved.risk_steps);
  milliseconds(",\"risk_ms\":", saved.risk_time);
  line.text("}");
}

}  // namespace

std::string_view write_step_line(const StepEvent& event, std::span<char> buffer) {
  BufferWriter line(buffer);
  line.text("{\"step\":").integer(event.step).text(",\"epoch\":").integer(event.epoch).text(",\"loss\":");
  write_number(line, event.loss);
  // The bits as well, because the decimal is for people and a comparison needs the exact value.
  line.text(",\"loss_bits\":\"").bits(event.loss).text("\",\"lr\":");
  write_number(line, event.learning_rate);
  // Two decimals are more than a speed's accuracy.
  line.text(",\"images_per_s\":");
  write_number(line, std::isfinite(event.images_per_s) ? std::round(event.images_per_s * 100) / 100 : 0);
  if (event.skipped) line.text(",\"skipped\":true");
  if (event.saved) write_saved(line, *event.saved);
  return line.text("}").done();
}

JsonlSink::JsonlSink(std::string target, WriteLine write, std::function<void()> sync)
    : target_(std::move(target)), write_(std::move(write)), sync_(std::move(sync)) {}

void JsonlSink::step(const StepEvent& event) {
  if (failed_) return;
  try {
    write_(write_step_line(event, buffer_));
  } catch (const std::exception& error) {
    // One warning and then silence; a full disk would fail at every step.
    failed_ = true;
    log_warning("no more metrics are written to {} (training goes on): {}", target_, what_of(error));
  }
}

}}  // namespace holdfast::v0_2
