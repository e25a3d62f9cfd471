// Does not compile: none of these can be a part of a state, and the compiler says in one line what to write.
#include <torch/data/samplers/random.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include "holdfast/state/train_state.h"

void add(holdfast::TrainState& state, torch::optim::ReduceLROnPlateauScheduler& plateau,
         torch::data::samplers::RandomSampler& sampler, torch::nn::Linear& holder, double& variable) {
  state.add("part", ADDED);
}
