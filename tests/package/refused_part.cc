// Does not compile: no checkpoint can hold these classes of LibTorch, and the compiler says what to write.
#include <torch/data/samplers/random.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include "holdfast/state/train_state.h"

void add(holdfast::TrainState& state, torch::optim::ReduceLROnPlateauScheduler& plateau,
         torch::data::samplers::RandomSampler& sampler) {
  state.add("part", ADDED);
}
