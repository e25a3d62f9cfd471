// A model, an optimizer and a loader are there.
at::Tensor loss_of(const holdfast::Batch& batch);
int train(torch::nn::Sequential& net, torch::optim::AdamW& optimizer, holdfast::Loader& loader) {
  // BLOCK
}
