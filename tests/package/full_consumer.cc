// A run of a few steps in the directory given; started again, it goes on where it was.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>

#include "holdfast/holdfast.h"

int main(int, char** argv) {
  torch::nn::Linear net(4, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  holdfast::TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  holdfast::Checkpointer checkpointer(state, {.directory = argv[1], .notices = {.hear_signals = false}});
  const auto resumed = checkpointer.resume();
  std::printf("started at step %lld\n", static_cast<long long>(resumed.step));
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    auto loss = net->forward(at::ones({1, 4})).sum();
    loss.backward();
    checkpointer.before_update();
    optimizer.step();
    checkpointer.after_step({});
  }
  const int code = checkpointer.finish();
  return code == 0 && resumed.step == std::atoll(argv[2]) ? 0 : 1;
}
