// A program with a loop over a DataLoader of torch::data.
using Data =
    torch::data::datasets::MapDataset<torch::data::datasets::MNIST, torch::data::transforms::Stack<>>;
int train(torch::nn::Sequential& net, torch::optim::AdamW& optimizer, Data data) {
  // BLOCK
}
