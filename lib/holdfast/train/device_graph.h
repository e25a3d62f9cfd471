// A stretch of work on a device, recorded once and replayed often: a CUDA graph, behind an interface that can
// be tried without a GPU. A replay costs one launch where the work cost hundreds.
//
//   if (const std::string why = why_no_graph(device); !why.empty()) …      // eagerly, then
//   const auto graphs = make_cuda_graphs(device);
//   for (int i = 0; i < 3; ++i) graphs->aside(step);                       // warm-up: it counts
//   const auto graph = graphs->capture(step);                              // does nothing yet
//   graph->replay();                                                       // as if step() had been called
//
// What is recorded are kernels with the addresses that they were given: a replay reads and writes the same
// memory, and the host's part of the work (counters, branches) ran once, in the capture. Work for a capture
// neither waits for the device nor reads from it; warm-up, capture and replays are made on one thread. What
// it draws at random comes from the device's default generator or from one that was registered: a replay goes
// on where the generator is, as a call would, and saved generator states are right between replays.
//
// Errors: capture() throws Error with the cause in one line; nothing is recorded then, and device, allocator
// and generators are as before. Threads: one thread. Other threads may use CUDA during a capture.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::inline v1 {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;  // on the current stream
};

class GraphDevice {
 public:
  virtual ~GraphDevice() = default;
  // Calls `work` with a stream of its own as the current one, that on which captures are made: behind all
  // that the current stream was given, and before all that it will be given.
  virtual void aside(const std::function<void()>& work) = 0;
  // Records what `work` would do. Memory is shared with the graph `with`, if there is one: replay them in the
  // order of their captures, and let `with` live as long.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work,
                                               const DeviceGraph* with = nullptr) = 0;
};

// Empty when graphs can be tried on the device; else why not.
std::string why_no_graph(c10::Device device);

// `generators`: of the device, besides its default one. Requires why_no_graph(device) to be empty.
std::unique_ptr<GraphDevice> make_cuda_graphs(c10::Device device, std::vector<at::Generator> generators = {});

}  // namespace holdfast::inline v1
