// A training that makes single steps, normally or as replays of a device graph.
//
// With SGD a replay is a whole step. LAMB counts updates on the host, so a replay is one forward and backward
// pass, and the update stays outside. Errors: those of torch. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "holdfast/train/device_graph.h"
#include "training.h"

namespace holdfast::bench {

class Stepper {
 public:
  // `graph`: records after `warm_up` steps, if the device can.
  Stepper(Training& training, c10::Device device, bool graph);

  // Normal steps, on the stream of the recording.
  void warm_up(int steps, const std::function<void()>& between);
  // Empty, or the reason why steps continue without a graph.
  std::string record();
  void step();

 private:
  void ordinary_step();

  Training& training_;
  c10::Device device_;
  bool whole_;
  std::unique_ptr<GraphDevice> graphs_;
  std::unique_ptr<DeviceGraph> recorded_;
};

}  // namespace holdfast::bench
