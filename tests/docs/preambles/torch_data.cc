// A data set of torch::data, and a Checkpointer.
struct Data : torch::data::datasets::Dataset<Data> {
  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override;
};
void train_on(std::vector<torch::data::Example<>>& batch);
int train(Data data, holdfast::TrainState& state, holdfast::Checkpointer& checkpointer) {
  // BLOCK
}
