// Memory and use of the machine's GPUs, from the driver's library NVML. It is loaded at run time: without
// an NVIDIA driver there are no figures, and no error.
//
// Errors: none. Threads: one at a time. The library costs the process about 10 MB and 30 ms, once.
#pragma once

#include <memory>
#include <vector>

#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v0_2 {

class Nvml {
 public:
  // `library`: a name or path for dlopen().
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // All GPUs of the machine, whichever this process uses. Leaves out one that does not answer.
  std::vector<GpuFigures> read() const;

 private:
  struct Functions;

  void* library_ = nullptr;  // null: not available
  std::unique_ptr<Functions> functions_;
};

}}  // namespace holdfast::v0_2
