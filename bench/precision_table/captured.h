// A training step as a CUDA graph, and the stream that such a step needs.
//
// Requires for a capture: warm-up, capture and replays on one thread and inside one SideStream; a step that
// neither waits for the device nor reads from it. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

namespace holdfast::bench {

// While it lives, the thread's work goes to a stream of its own: a capture refuses the default one, and
// gradients must be added up on the stream that made the parameters. On a CPU nothing happens.
class SideStream {
 public:
  explicit SideStream(c10::Device device);
  ~SideStream();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Empty when graphs can be tried on the device; else why not.
std::string why_no_graph(c10::Device device);

class CapturedStep {
 public:
  // Captures one call of `step`. Error with the cause when that fails; the device can be used as before.
  explicit CapturedStep(const std::function<void()>& step);
  ~CapturedStep();
  void replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Waits until the device has done its work.
void wait_for(c10::Device device);
// The device's memory in bytes; 0 on a CPU.
double memory_of(c10::Device device);
// Gives memory that Torch keeps for later back to the device.
void release_memory();

}  // namespace holdfast::bench
