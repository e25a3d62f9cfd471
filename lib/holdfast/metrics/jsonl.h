// Writes one JSON object a step, one line each:
//
//   {"step":12,"epoch":0,"loss":2.302585,"loss_bits":"40026bb1…","lr":0.1,"images_per_s":1830.5}
//
// docs/metrics.md#json-lines describes every member. The sink knows no files. It passes each line to `write`,
// such as append() of a LineFile:
//
//   JsonlSink sink("metrics.jsonl", [file](std::string_view line) { file->append(line); });
//
// `sync` is what row_sync() returns, such as a call of file->file().sync().
// Errors: if `write` throws, the sink logs that once with the target's name, and writes nothing more.
// Threads: one thread. A line is formatted without allocation.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kStepLineSize = 784;  // more than the longest line

// Formats the line without its newline. `buffer` has at least kStepLineSize bytes.
HOLDFAST_EXPORT std::string_view write_step_line(const StepEvent& event, std::span<char> buffer);

class HOLDFAST_EXPORT JsonlSink final : public MetricSink {
 public:
  using WriteLine = std::function<void(std::string_view line)>;
  JsonlSink(std::string target, WriteLine write, std::function<void()> sync = {});

  void step(const StepEvent& event) override;
  std::function<void()> row_sync() override { return sync_; }
  bool failed() const { return failed_; }

 private:
  std::string target_;
  WriteLine write_;
  std::function<void()> sync_;
  bool failed_ = false;
  std::array<char, kStepLineSize> buffer_{};
};

}}  // namespace holdfast::v0_2
