// The ranks are connected.
void divide(holdfast::ProcessGroup& group, torch::nn::Sequential& net, holdfast::TrainState& state,
            holdfast::GradScaler& scaler) {
  // BLOCK
}
