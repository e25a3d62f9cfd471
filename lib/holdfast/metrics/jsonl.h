// One JSON object a step, a line each:
//
//   {"step":12,"epoch":0,"loss":2.302585,"loss_bits":"40026bb1…","lr":0.1,"images_per_s":1830.5}
//
// A step whose update was left out (its gradients were not finite) has "skipped":true behind that. The
// first step after a save became durable tells of it:
//
//   …,"saved":{"step":10,"bytes":188743680,"blocked_ms":21.4,"staging_ms":93.1,"write_ms":180.2,
//   "commit_ms":31.7,"risk_steps":12,"risk_ms":15230.6}}
//
// `loss` is the shortest decimal that gives the same double back, and the string "nan", "inf" or "-inf" where
// JSON has no number; `loss_bits` are its bits (base/bits.h), so two runs can be compared bit for bit.
//
// The sink does not know files: it hands each finished line to `write`, which for a file is an io LineFile's
// append (one write(2) a line, a torn last line closed first):
//
//   JsonlSink sink("metrics.jsonl", [&](std::string_view line) { file.append(line); });
//
// Errors: when `write` throws, that is logged once with the target's name, and the sink is silent from then
// on. Threads: one thread. A line is formatted without allocation.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/metrics/sink.h"

namespace holdfast::inline v1 {

inline constexpr std::size_t kStepLineSize = 784;  // more than the longest line

// The line without its newline, in `buffer` (at least kStepLineSize).
std::string_view write_step_line(const StepEvent& event, std::span<char> buffer);

class JsonlSink final : public MetricSink {
 public:
  using WriteLine = std::function<void(std::string_view line)>;
  JsonlSink(std::string target, WriteLine write);

  void step(const StepEvent& event) override;
  bool failed() const { return failed_; }

 private:
  std::string target_;
  WriteLine write_;
  bool failed_ = false;
  std::array<char, kStepLineSize> buffer_{};
};

}  // namespace holdfast::inline v1
