// A loop that chooses a precision or an optimizer.
at::Tensor loss_of(const holdfast::Batch& batch);
void train(torch::nn::Sequential& net, holdfast::Loader& loader, holdfast::TrainState& state,
           holdfast::Checkpointer& checkpointer, at::Device device) {
  // BLOCK
}
