// A whole model in the memory format that convolutions like best on tensor cores and in oneDNN: NHWC.
//
//   holdfast::to_channels_last(*net);               // before or after the optimizer is made
//   holdfast::to_channels_last(optimizer);          // only when it has made updates already
//   net->forward(images.contiguous(at::MemoryFormat::ChannelsLast));
//
// Parameters of four dimensions, and nothing else, get channels_last strides; values, shapes, names and the
// tensors' identity stay, so optimizers and checkpoints know them as before (a checkpoint holds strides, and
// a resumed run has those of the checkpoint). Gradients that are there are laid out anew as well. The
// optimizer's form does the same to its slots, so that a fused update need not copy them. Doing it twice
// changes nothing.
//
// Requires: not between a captured graph and its replay: storages are others afterwards.
// Threads: the training thread.
#pragma once

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

void to_channels_last(torch::nn::Module& module);
// Slots of torch::optim's SGD, Adam, AdamW, RMSprop and Adagrad, and of those of holdfast/optim.
void to_channels_last(torch::optim::Optimizer& optimizer);

}  // namespace holdfast::inline v1
