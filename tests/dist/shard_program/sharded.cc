#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "dist/shard_program/digests.h"
#include "dist/shard_program/scenarios.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/found_inf.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/state/train_state.h"
#include "unit/state/staging.h"

namespace holdfast::test {
namespace {

namespace to = torch::optim;

constexpr std::int64_t kChunkBytes = 1000;  // parameters lie in several, and several in one

// Odd sizes, and a weight that is not contiguous.
struct ConvNet : torch::nn::Module {
  explicit ConvNet(at::ScalarType type, bool channels_last = true) {
    torch::manual_seed(5);
    convolution = register_module("convolution", torch::nn::Conv2d(3, 7, 3));
    first = register_module("first", torch::nn::Linear(7, 29));
    last = register_module("last", torch::nn::Linear(29, 3));
    to(type);
    const at::NoGradGuard no_grad;
    if (!channels_last) return;
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  at::Tensor loss(const at::Tensor& x) {
    const at::Tensor out = last(first(convolution(x).relu().mean({2, 3})).relu());
    return (out - 1).square().mean();
  }
  std::vector<to::OptimizerParamGroup> groups(bool biases_of_their_own = true) {
    std::vector<at::Tensor> weights{convolution->weight, first->weight, last->weight};
    std::vector<at::Tensor> biases{convolution->bias, first->bias, last->bias};
    if (biases_of_their_own) return {to::OptimizerParamGroup(weights), to::OptimizerParamGroup(biases)};
    weights.insert(weights.end(), biases.begin(), biases.end());
    return {to::OptimizerParamGroup(weights)};
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::Linear first{nullptr}, last{nullptr};
};

at::Tensor batch_of(const ProcessGroup& group, int step, at::ScalarType type) {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * step + group.rank()));
  return at::randn({4, 3, 5, 5}, generator, at::TensorOptions(type));
}

using Make = std::function<std::unique_ptr<to::Optimizer>(ConvNet&)>;
struct OptimizerCase {
  const char* name;
  double slots;  // of the size of the parameters
  Make make;
};

const std::vector<OptimizerCase>& cases() {
  static const std::vector<OptimizerCase> all{
      {"sgd", 1,
       [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         return std::make_unique<FusedSgd>(net.groups(),
                                           to::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
       }},
      {"adam", 3,
       [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         return std::make_unique<FusedAdam>(net.groups(), to::AdamOptions(1e-2).amsgrad(true));
       }},
      {"lamb", 2,  // as the formula has it, biases without a ratio
       [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         auto groups = net.groups();
         groups.front().set_options(std::make_unique<LambOptions>(LambOptions(1e-2).weight_decay(0.1)));
         groups.back().set_options(std::make_unique<LambOptions>(1e-2));
         return std::make_unique<Lamb>(std::move(groups), LambOptions(1e-2));
       }},
      {"clipped_lamb", 2,  // as apex has it, and every ratio
       [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         return std::make_unique<Lamb>(
             net.groups(), LambOptions(1e-2).weight_decay(0.1).adapt_all(true).max_grad_norm(0.05));
       }},
      {"other_lamb", 2,  // what else is called so
       [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         return std::make_unique<Lamb>(net.groups(), LambOptions(1e-2)
                                                         .weight_decay(0.1)
                                                         .decoupled(false)
                                                         .bias_correction(false)
                                                         .grad_averaging(false)
                                                         .most_norm(0.5));
       }},
      {"adamw", 2, [](ConvNet& net) -> std::unique_ptr<to::Optimizer> {
         return std::make_unique<FusedAdamW>(net.groups(), to::AdamWOptions(1e-2).weight_decay(0.1));
       }}};
  return all;
}

// A schedule: only of the second group.
void set_rate(to::Optimizer& optimizer, int step) {
  optimizer.param_groups()[1].options().set_lr(0.02 / (1 + step));
}

struct Sharded {
  Sharded(const OptimizerCase& one, ProcessGroup& ranks, ProcessGroup& shares, bool averaged,
          at::ScalarType type, bool channels_last = true)
      : group(ranks),
        net(type, channels_last),
        parallel(net, ranks),
        inner(one.make(net)),
        optimizer(*inner, net, shares, {.averaged = averaged, .chunk_bytes = kChunkBytes}),
        averages(averaged) {
    state.add("model", net);
    state.add("optimizer", optimizer);
    state.add("parallel", parallel);  // the order of sums
  }
  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      set_rate(*inner, step);
      optimizer.zero_grad();
      parallel.backward(net.loss(batch_of(group, step, net.first->weight.scalar_type())),
                        averages ? Gradients::reduce : Gradients::accumulate);
      optimizer.step();
    }
  }
  ProcessGroup& group;
  ConvNet net;
  DataParallel parallel;
  std::unique_ptr<to::Optimizer> inner;
  ShardedOptimizer optimizer;
  bool averages;
  TrainState state;
};

struct Whole {
  Whole(const OptimizerCase& one, ProcessGroup& ranks, at::ScalarType type)
      : group(ranks), net(type), parallel(net, ranks), optimizer(one.make(net)) {
    state.add("model", net);
    state.add("optimizer", *optimizer);
  }
  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      set_rate(*optimizer, step);
      optimizer->zero_grad();
      parallel.backward(net.loss(batch_of(group, step, net.first->weight.scalar_type())));
      optimizer->step();
    }
  }
  ProcessGroup& group;
  ConvNet net;
  DataParallel parallel;
  std::unique_ptr<to::Optimizer> optimizer;
  TrainState state;
};

// Every tensor of the one under its name in the other: how far apart at most; infinite: another set of
// tensors.
template <class T>
double distance(const Snapshot& a, const Snapshot& b) {
  if (a.layout->tensors().size() != b.layout->tensors().size())
    return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (const TensorSpec& spec : a.layout->tensors()) {
    if (!b.find(spec.name)) return std::numeric_limits<double>::infinity();
    const auto one = values<T>(a, spec.name), other = values<T>(b, spec.name);
    if (spec.name.starts_with("rng/")) continue;
    if (one.size() != other.size()) return std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < one.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(one[i] - other[i])));
    }
  }
  return worst;
}

std::string in_words(double distance, at::ScalarType type) {
  if (distance == 0) return "same";
  const bool close = distance < (type == at::kFloat ? 1e-6 : 1e-13);
  return close ? "close" : "off by " + std::to_string(distance);
}

}  // namespace

// OPTIMIZER averaged|reduced same|close BYTES-OF-SLOTS DIGEST
Lines equals_whole(ProcessGroup& group) {
  Lines lines;
  const at::ScalarType type = group.world_size() == 2 ? at::kFloat : at::kDouble;
  for (const OptimizerCase& one : cases()) {
    Whole whole(one, group, type);
    whole.train(0, 6);
    const auto expected = stage(whole.state);
    for (const bool averaged : {true, false}) {
      Sharded sharded(one, group, group, averaged, type);
      sharded.train(0, 6);
      const auto found = stage(sharded.state);
      const double apart =
          type == at::kFloat ? distance<float>(*expected, *found) : distance<double>(*expected, *found);
      const double all = one.slots * static_cast<double>(flat_of(whole.net.parameters()).nbytes());
      lines.push_back(std::string(one.name) + (averaged ? " averaged " : " reduced ") +
                      in_words(apart, type) +
                      (static_cast<double>(sharded.optimizer.slot_bytes()) <= all / group.world_size() + 300
                           ? " a share "
                           : " too much ") +
                      digest_of_tensors(sharded.net.parameters()));
    }
  }
  return lines;
}

// OPTIMIZER same|close same|close: what this world saved goes on in a world of one, and the other way round.
Lines other_worlds(ProcessGroup& group) {
  Lines lines;
  ProcessGroup alone({.place = {}});
  for (const OptimizerCase& one : cases()) {
    std::string line = one.name;
    for (const bool from_many : {true, false}) {
      Sharded straight(one, group, from_many ? group : alone, true, at::kFloat);
      straight.train(0, 3);
      const auto kept = stage(straight.state);
      straight.train(3, 6);
      Sharded resumed(one, group, from_many ? alone : group, true, at::kFloat);
      resumed.train(0, 1);  // a past that the checkpoint replaces
      resumed.state.load(*kept, {});
      resumed.train(3, 6);
      line += " " + in_words(distance<float>(*stage(straight.state), *stage(resumed.state)), at::kFloat);
    }
    lines.push_back(line);
  }
  return lines;
}

// OPTIMIZER averaged|reduced same|other: this world interrupted after three updates and resumed, against not
// interrupted, to the bit; and the same parameters on all ranks. One of the resumed programs has forgotten
// channels_last, which the checkpoint brings.
Lines resumes(ProcessGroup& group) {
  Lines lines;
  for (const OptimizerCase& one : cases()) {
    for (const bool averaged : {true, false}) {
      Sharded straight(one, group, group, averaged, at::kFloat);
      straight.train(0, 3);
      const auto kept = stage(straight.state);
      straight.train(3, 7);
      Sharded resumed(one, group, group, averaged, at::kFloat, averaged);
      resumed.state.load(*kept, {});
      resumed.train(3, 7);
      lines.push_back(
          std::string(one.name) + (averaged ? " averaged " : " reduced ") +
          (distance<float>(*stage(straight.state), *stage(resumed.state)) == 0 ? "same " : "other ") +
          digest_of_tensors(resumed.net.parameters()));
    }
  }
  return lines;
}

// norm same|close, the parameters after such an update, and the norm after gradients that were no numbers
Lines clips(ProcessGroup& group) {
  const OptimizerCase& one = cases().front();
  Whole whole(one, group, at::kDouble);
  whole.parallel.backward(whole.net.loss(batch_of(group, 0, at::kDouble)));
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : whole.net.parameters()) gradients.push_back(parameter.grad());
  const double expected = clip_grad_norm(gradients, 0.01).item<double>();
  whole.optimizer->step();
  Sharded sharded(one, group, group, false, at::kDouble);
  sharded.net.loss(batch_of(group, 0, at::kDouble)).backward();
  sharded.optimizer.reduce();
  const double found = sharded.optimizer.clip_grad_norm(0.01).item<double>();
  sharded.inner->step();
  sharded.optimizer.gather();
  const double apart = distance<double>(*stage(whole.state), *stage(sharded.state));
  Sharded spoiled(one, group, group, true, at::kDouble);
  double after = 0;
  for (const double factor :
       {std::numeric_limits<double>::quiet_NaN(), 1.0}) {  // an update left out, and the next
    spoiled.optimizer.zero_grad();
    spoiled.parallel.backward(spoiled.net.loss(batch_of(group, 0, at::kDouble)) * factor);
    spoiled.optimizer.reduce();
    after = spoiled.optimizer.clip_grad_norm(0.01).item<double>();
  }
  return {"norm " + std::string(expected > 0.02 ? "clipped " : "small ") +
          (std::abs(found - expected) < 1e-12 ? "close " : "other ") + (apart < 1e-12 ? "close " : "other ") +
          (std::abs(after - expected) < 1e-12 ? "close" : "other")};
}

// agreed|alone FOUND SCALE PARAMETERS: an update with an inf in the first element, which is in one share.
Lines overflows(ProcessGroup& group) {
  Lines lines;
  for (const bool agreed : {true, false}) {
    Sharded sharded(cases().back(), group, group, false, at::kFloat);
    const std::string before = digest_of_tensors(sharded.net.parameters());
    GradScaler scaler(at::kCPU, {.init_scale = 1024});
    if (agreed) scaler.agree_by(found_on_any_rank(group));
    sharded.net.loss(batch_of(group, 0, at::kFloat)).backward();
    if (group.rank() == 0) {
      const at::NoGradGuard no_grad;
      sharded.net.convolution->weight.mutable_grad()[0][0][0][0] = std::numeric_limits<float>::infinity();
    }
    sharded.optimizer.reduce();
    const at::Tensor found = scaler.unscale(*sharded.inner).clone();
    dynamic_cast<FusedStep&>(*sharded.inner).step_scaled(std::nullopt, found);
    scaler.update();
    sharded.optimizer.gather();
    lines.push_back((agreed ? "agreed " : "alone ") + std::to_string(found.item<int>()) + " " +
                    std::to_string(scaler.scale_tensor().item<int>()) + " " +
                    (digest_of_tensors(sharded.net.parameters()) == before ? "as before" : "updated"));
  }
  return lines;
}

}  // namespace holdfast::test
