// A loop of several ranks.
at::Tensor loss_of(const holdfast::Batch& batch);
int train(torch::nn::Sequential& net, torch::optim::AdamW& optimizer, holdfast::Loader& loader,
          holdfast::TrainState& state) {
  // BLOCK
}
