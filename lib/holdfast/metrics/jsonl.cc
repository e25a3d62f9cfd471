#include "holdfast/metrics/jsonl.h"

#include <charconv>
#include <cmath>
#include <exception>
#include <utility>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

class LineWriter {
 public:
  explicit LineWriter(std::span<char> buffer) : buffer_(buffer) {}

  void text(std::string_view text) { used_ += text.copy(rest().data(), rest().size()); }
  void integer(std::int64_t value) {
    used_ = static_cast<std::size_t>(std::to_chars(rest().data(), rest().data() + rest().size(), value).ptr -
                                     buffer_.data());
  }
  void number(double value) {
    // JSON has no nan and no inf; as texts they stay visible.
    const bool quoted = !std::isfinite(value);
    if (quoted) text("\"");
    used_ += write_shortest_decimal(value, rest());
    if (quoted) text("\"");
  }
  void bits(double value) {
    write_bits_hex(value, rest());
    used_ += 16;
  }
  std::string_view done() const { return {buffer_.data(), used_}; }

 private:
  std::span<char> rest() const { return buffer_.subspan(used_); }

  std::span<char> buffer_;
  std::size_t used_ = 0;
};

void write_saved(const SavedEvent& saved, LineWriter& line) {
  const auto integer = [&](const char* name, auto value) {
    line.text(name);
    line.integer(static_cast<std::int64_t>(value));
  };
  const auto milliseconds = [&](const char* name, Duration value) {
    line.text(name);
    // Rounded to microseconds: more digits would only make the file longer.
    line.number(std::round(std::chrono::duration<double, std::micro>(value).count()) / 1e3);
  };
  integer(",\"saved\":{\"step\":", saved.step);
  integer(",\"bytes\":", saved.bytes);
  milliseconds(",\"blocked_ms\":", saved.blocked);
  milliseconds(",\"staging_ms\":", saved.staging);
  milliseconds(",\"write_ms\":", saved.write);
  milliseconds(",\"commit_ms\":", saved.commit);
  integer(",\"risk_steps\":", saved.risk_steps);
  milliseconds(",\"risk_ms\":", saved.risk_time);
  line.text("}");
}

}  // namespace

std::string_view write_step_line(const StepEvent& event, std::span<char> buffer) {
  LineWriter line(buffer);
  line.text("{\"step\":");
  line.integer(event.step);
  line.text(",\"epoch\":");
  line.integer(event.epoch);
  line.text(",\"loss\":");
  line.number(event.loss);
  // The bits as well, because the decimal is for people and a comparison needs the exact value.
  line.text(",\"loss_bits\":\"");
  line.bits(event.loss);
  line.text("\",\"lr\":");
  line.number(event.learning_rate);
  line.text(",\"images_per_s\":");
  // Two decimals are more than a speed's accuracy.
  line.number(std::isfinite(event.images_per_s) ? std::round(event.images_per_s * 100) / 100 : 0);
  if (event.skipped) line.text(",\"skipped\":true");
  if (event.saved) write_saved(*event.saved, line);
  line.text("}");
  return line.done();
}

JsonlSink::JsonlSink(std::string target, WriteLine write)
    : target_(std::move(target)), write_(std::move(write)) {}

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
