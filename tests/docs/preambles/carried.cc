// Local variables of a loop that decide its next step.
struct Cart {
  double position = 0;
  std::mt19937 engine;
};
void carry(holdfast::TrainState& state, at::Tensor& hidden, double& best_loss, int& patience,
           double& baseline, Cart& cart) {
  // BLOCK
}
