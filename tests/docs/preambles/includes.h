// What blocks of the documents may use without an #include of their own.
#include <torch/data/dataloader.h>
#include <torch/data/datasets.h>
#include <torch/data/transforms.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "holdfast/distributed/distributed.h"
#include "holdfast/holdfast.h"
#include "holdfast/metrics/background.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/optim/channels_last.h"
#include "holdfast/train/step.h"
#include "holdfast/train/trainer.h"

using namespace std::chrono_literals;
