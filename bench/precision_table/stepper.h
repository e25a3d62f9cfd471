// A training that makes steps, one by one or as replays of a graph of the device.
//
// With SGD a replay is the whole step. LAMB counts its updates on the host, so there a replay is one pass,
// forward and backward, and the update stays outside.
// Errors: what Torch throws. Threads: one thread.
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
  // `graph`: record after `warm_up` steps, if that can be done on the device.
  Stepper(Training& training, c10::Device device, bool graph);

  // Ordinary steps, on the stream on which a recording will be made.
  void warm_up(int steps, const std::function<void()>& between);
  // Empty, or why all goes on without.
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
