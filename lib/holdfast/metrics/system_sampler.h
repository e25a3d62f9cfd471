// Figures of this process from /proc, and of the machine's GPUs. Costs about 60 µs a call, and with GPUs a
// few milliseconds.
//
// Errors: none; what cannot be read is 0. Threads: one at a time.
#pragma once

#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/metrics/event.h"
#include "holdfast/metrics/nvml.h"

namespace holdfast { inline namespace v0_2 {

class SystemSampler {
 public:
  explicit SystemSampler(const Clock& clock = Clock::real()) : clock_(clock) {}

  // Rates are those since the last call; the first call has none.
  SystemEvent sample();

 private:
  const Clock& clock_;
  std::optional<Nvml> nvml_;  // loaded by the first call, on the caller's thread
  std::optional<SteadyTime> last_;
  SystemEvent before_;
};

}}  // namespace holdfast::v0_2
