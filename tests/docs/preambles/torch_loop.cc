// A program with a loop over a DataLoader of torch::data.
struct Data {
  struct Sample {
    at::Tensor input, target;
  };
  std::int64_t size() const { return 1; }
  Sample get(std::int64_t) const { return {}; }
};
int train(torch::nn::Sequential& net, torch::optim::AdamW& optimizer, Data data) {
  // BLOCK
}
