// save_archives FOLDER: what torch::save of this LibTorch writes, small. `make` beside it builds and runs it.
#include <torch/torch.h>

#include <fstream>
#include <string>

struct Net : torch::nn::Module {
  Net() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(2));
    head = register_module("head", torch::nn::Linear(2, 3));
    scale = register_parameter("scale", torch::ones({}));
    half = register_buffer("half", torch::arange(5, torch::kFloat).to(torch::kBFloat16));
  }
  torch::Tensor forward(torch::Tensor x) { return head(norm(conv(x)).relu().mean({2, 3})) * scale; }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor scale, half;
};

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::string folder = std::string(argv[1]) + "/";
  auto net = std::make_shared<Net>();
  float value = 0;
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) {
      parameter.copy_(torch::arange(parameter.numel(), torch::kFloat).reshape(parameter.sizes()) / 8 +
                      ++value);
    }
  }
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
  torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.25).amsgrad(true));
  for (int i = 0; i < 2; ++i) {
    net->zero_grad();
    net->forward(torch::ones({2, 1, 4, 4})).sum().backward();
    sgd.step();
    adam.step();
  }
  torch::save(net, folder + "module.pt");
  torch::save(sgd, folder + "sgd.pt");
  torch::save(adam, folder + "adamw.pt");
  torch::save(net->conv->weight, folder + "tensor.pt");
  torch::save(std::vector<torch::Tensor>{net->conv->weight, net->half}, folder + "tensors.pt");
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& parameter : net->named_parameters())
    dict.insert(parameter.key(), parameter.value().detach());
  const std::vector<char> bytes = torch::pickle_save(dict);
  std::ofstream(folder + "pickle_save.pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
  // C++ names a storage by its element type, also where Python has no such class.
  c10::Dict<std::string, torch::Tensor> types;
  const auto numbers = torch::arange(8, torch::kUInt8).reshape({2, 4});
  for (const auto type :
       {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kFloat8_e4m3fnuz, torch::kFloat8_e5m2fnuz,
        torch::kFloat8_e8m0fnu, torch::kFloat4_e2m1fn_x2, torch::kBits8}) {
    types.insert(c10::toString(type), numbers.clone().view(type));
  }
  for (const auto type : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {
    types.insert(c10::toString(type), numbers.to(type));
  }
  const std::vector<char> typed = torch::pickle_save(types);
  std::ofstream(folder + "types.pt", std::ios::binary)
      .write(typed.data(), static_cast<std::streamsize>(typed.size()));
#endif
  // What they must be read as.
  std::ofstream names(folder + "values.txt");
  const auto say = [&](const std::string& name, const torch::Tensor& tensor) {
    names << name << ' ' << toString(tensor.scalar_type());
    for (const int64_t size : tensor.sizes()) names << ' ' << size;
    names << " :";
    const auto flat = tensor.detach().to(torch::kDouble).flatten().contiguous();
    names << std::hexfloat;
    for (int64_t i = 0; i < flat.numel(); ++i) names << ' ' << flat[i].item<double>();
    names << std::dec << '\n';
  };
  for (const auto& parameter : net->named_parameters()) say(parameter.key(), parameter.value());
  for (const auto& buffer : net->named_buffers()) say(buffer.key(), buffer.value());
  return 0;
}
