#include "stepper.h"

#include "device.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {

Stepper::Stepper(Training& training, c10::Device device, bool graph)
    : training_(training), device_(device), whole_(training.options().optimizer.name == "sgd") {
  if (graph) graphs_ = make_cuda_graphs(device);
}

void Stepper::ordinary_step() {
  if (!graphs_ || whole_) return training_.step();
  training_.forget_gradients(true);
  for (std::int64_t i = 0; i < training_.options().accumulation; ++i) training_.pass();
  training_.update();
}

void Stepper::warm_up(int steps, const std::function<void()>& between) {
  for (int i = 0; i < steps; ++i) {
    if (between) between();
    if (graphs_) {
      graphs_->aside([this] { ordinary_step(); });
    } else {
      ordinary_step();
    }
  }
  wait_for(device_);
}

std::string Stepper::record() {
  if (!graphs_) return "";
  try {
    recorded_ = graphs_->capture([this] { whole_ ? training_.step() : training_.pass(); });
  } catch (const Error& error) {
    return std::string("measured eagerly, as the capture failed: ") + error.what();
  }
  step();  // the first one uploads the graph
  wait_for(device_);
  return "";
}

void Stepper::step() {
  if (!recorded_) return ordinary_step();
  if (whole_) return recorded_->replay();
  training_.forget_gradients(true);
  for (std::int64_t i = 0; i < training_.options().accumulation; ++i) recorded_->replay();
  training_.update();
}

}  // namespace holdfast::bench
