// An optimizer that is not yet added, and how the program unfreezes.
void unfreeze(torch::optim::AdamW& optimizer);
void begin(holdfast::TrainState& state, holdfast::Checkpointer& checkpointer,
           torch::optim::AdamW& optimizer) {
  // BLOCK
}
