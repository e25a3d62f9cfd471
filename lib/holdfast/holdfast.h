// The one include of a training loop: the state, the checkpointer, data, schedules, optimizers and
// precisions.
//
//   holdfast::TrainState state;
//   state.add("model", *net);  state.add("optimizer", optimizer);  state.add("data", loader);
//   holdfast::Checkpointer checkpointer(state, {.directory = "/mnt/ckpt/run1"});
//
// docs/own_loop.md has the whole loop. Several ranks: holdfast/distributed/distributed.h besides. Each header
// can be included alone, too; cmake/public_headers.cmake lists those that are installed. Needs LibTorch.
#pragma once

#include "holdfast/base/error.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/base/last_words.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/augment.h"
#include "holdfast/data/dataset.h"
#include "holdfast/data/global_batch.h"
#include "holdfast/data/loader.h"
#include "holdfast/data/torch_sampler.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/ema.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/optim/rate_plan.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/precision/precision.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/module_state.h"
#include "holdfast/state/optimizer_state.h"
#include "holdfast/state/rng_state.h"
#include "holdfast/state/stateful.h"
#include "holdfast/state/stored_optimizer.h"
#include "holdfast/state/train_state.h"
