// Records work on a device once and replays it: a CUDA graph behind an interface that tests can use without a
// GPU. A replay costs one launch; the work may have cost hundreds.
//
//   const auto graphs = make_cuda_graphs(device);       // requires why_no_graph(device).empty()
//   for (int i = 0; i < 3; ++i) graphs->aside(step);    // warm-up: real steps
//   const auto graph = graphs->capture(step);           // records, computes nothing
//   graph->replay();                                    // as if step() had been called
//
// Errors: capture() throws Error with the cause in one line. Then nothing is recorded, and device, allocator
// and generators are as before. Threads: one thread for warm-up, capture and replays. Others may use CUDA
// meanwhile.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// A recording has kernels with fixed addresses: a replay reads and writes the same memory. The host's part of
// the work (counters, branches) runs once, in the capture. Captured work must not wait for the device or read
// from it. It draws random numbers from the device's default generator or from a registered one. A replay
// continues where the generator is, as a call would, and saved generator states are correct between replays.
class HOLDFAST_EXPORT DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;  // on the current stream
};

class HOLDFAST_EXPORT GraphDevice {
 public:
  virtual ~GraphDevice() = default;
  // Calls `work` with a separate stream, the capture stream, as the current one. That stream waits for
  // everything in the caller's stream, and the caller's stream then waits for it.
  virtual void aside(const std::function<void()>& work) = 0;
  // Records what `work` would do. Shares memory with the graph `with`, if given: replay both in the order of
  // their captures, and keep `with` alive as long.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work,
                                               const DeviceGraph* with = nullptr) = 0;
};

// Empty if graphs can be tried on the device, otherwise the reason.
HOLDFAST_EXPORT std::string why_no_graph(c10::Device device);

// `generators`: on the device, besides its default one. Requires empty why_no_graph(device).
HOLDFAST_EXPORT std::unique_ptr<GraphDevice> make_cuda_graphs(c10::Device device,
                                                              std::vector<at::Generator> generators = {});

}}  // namespace holdfast::v0_2
