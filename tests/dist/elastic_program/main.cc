// One rank of a training by holdfast::Trainer: dist_elastic RUN-DIRECTORY STEPS [KEY=VALUE …].
//
//   batch=24       global batch            most=0     of one pass
//   term=R:S       SIGTERM to rank R in step S; `term=R:eval` while it evaluates
//   inf=R:S        rank R's loss is infinite in step S, under a gradient scaler
//   pace=N         each pass takes N ms longer, until RUN-DIRECTORY.quick exists
//
// Says on standard output `ids STEP PASS a,b,…` for each batch, `loss STEP BITS` for each step, `scored …`
// for each evaluation, and at the end `parameters DIGEST` and the Trainer's own line.
#include <signal.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "holdfast/base/bits.h"
#include "holdfast/base/last_words.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/global_batch.h"
#include "holdfast/data/loader.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"
#include "holdfast/train/trainer.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

// Sample i, and i itself.
struct Numbered {
  struct Sample {
    at::Tensor x;
    std::int64_t id;
  };
  std::int64_t count;
  std::int64_t size() const { return count; }
  Sample get(std::int64_t index) const {
    return {torch::arange(8, torch::kFloat).add(static_cast<double>(index)).sin(), index};
  }
};

// Without batch norms: what the ranks' number changes is the rounding alone. The buffer is each rank's own
// between two steps.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(8, 32));
    last = register_module("last", torch::nn::Linear(32, 1));
    seen = register_buffer("seen", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    if (is_training()) seen.copy_(inputs.detach().sum());
    return last->forward(torch::relu(first->forward(inputs)));
  }
  torch::nn::Linear first = nullptr;
  torch::nn::Linear last = nullptr;
  torch::Tensor seen;
};

torch::Tensor loss_of(Net& net, const Batch& batch) {
  const torch::Tensor wanted = batch.inputs.slice(1, 0, 1).cos();
  return torch::nn::functional::mse_loss(net.forward(batch.inputs), wanted);
}

std::string digest_of_parameters(const Net& net) {
  std::string bytes;
  for (const torch::Tensor& parameter : net.parameters()) {
    const torch::Tensor flat = parameter.detach().contiguous();
    bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  }
  return to_hex(digest_of(std::as_bytes(std::span(bytes))));
}

struct Event {  // at a step of one rank
  int rank = -1;
  std::string when;
  bool is(const ProcessGroup& group, const std::string& now) const {
    return rank == group.rank() && when == now;
  }
};

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 3; i < argc; ++i) {
      const std::string text = argv[i];
      const auto at = text.find('=');
      values_[text.substr(0, at)] = text.substr(at + 1);
    }
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : std::atoll(found->second.c_str());
  }
  Event event(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return {};
    const auto at = found->second.find(':');
    return {std::atoi(found->second.c_str()), found->second.substr(at + 1)};
  }

 private:
  std::map<std::string, std::string> values_;
};

// Returns once it has been heard.
void terminate(const Checkpointer& checkpointer) {
  raise(SIGTERM);
  for (int i = 0; i < 30'000 && checkpointer.stop_reason().empty(); ++i) std::this_thread::sleep_for(1ms);
}

int train(const std::string& directory, std::int64_t steps, const Arguments& arguments) {
  ProcessGroup group({.timeout = 300s});
  Agreement agreement(group);
  const BatchShare share =
      divide_batch(arguments.number("batch", 24), group.world_size(), arguments.number("most", 0));
  if (group.rank() == 0) log_info(to_text(share));
  torch::manual_seed(5 + static_cast<std::uint64_t>(group.rank()));  // rank 0's weights count
  const auto shared = std::make_shared<Net>();                       // as Module::modules() wants it
  Net& net = *shared;
  DataParallel parallel(net, group);
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const Shard shard{group.rank(), group.world_size()};
  // 10 updates of 24 an epoch, and a rest that is dropped.
  Loader data(Numbered{250}, {.batch_size = share.batch_size,
                              .seed = 11,
                              .accumulation = share.accumulation,
                              .workers = 0,
                              .shard = shard});
  // Unequal shares: 7 and 6 batches of two ranks, the last one smaller.
  Loader test_data(
      Numbered{101},
      {.batch_size = 8, .epochs = 1, .shuffle = false, .drop_last = false, .workers = 0, .shard = shard});
  TrainState state;
  state.add("model", net);
  state.add("optimizer", optimizer);
  state.add("data", data);
  state.add("parallel", parallel);
  const Event inf = arguments.event("inf");
  std::optional<GradScaler> scaler;
  if (inf.rank >= 0) {
    scaler.emplace(at::kCPU);
    state.add("scaler", *scaler);
  }

  int pass = 0;
  const auto loss = [&](const Batch& batch) {
    std::string line = "ids " + std::to_string(state.step() + 1) + " " + std::to_string(pass++) + " ";
    for (std::int64_t i = 0; i < batch.targets.size(0); ++i) {
      line += (i > 0 ? "," : "") + std::to_string(batch.targets[i].item<std::int64_t>());
    }
    std::puts(line.c_str());
    std::fflush(stdout);  // the test reads along, and kills
    const auto pace = std::chrono::milliseconds(arguments.number("pace", 0));
    if (pace > 0ms && !std::filesystem::exists(directory + ".quick")) std::this_thread::sleep_for(pace);
    const torch::Tensor value = loss_of(net, batch);
    return inf.is(group, std::to_string(state.step() + 1)) ? value * std::numeric_limits<float>::infinity()
                                                           : value;
  };
  Step step(
      optimizer, loss,
      {.accumulation = share.accumulation, .scaler = scaler ? &*scaler : nullptr, .parallel = &parallel});
  Checkpointer checkpointer(state, {.directory = directory,
                                    .every = {SaveEvery::steps(4)},
                                    .notices = {.cloud = false, .term_grace = 120s},
                                    .ranks = {.channel = &agreement}});
  struct Sink final : MetricSink {
    void step(const StepEvent& event) override {
      std::printf("loss %lld %s%s\n", static_cast<long long>(event.step),
                  shortest_decimal(event.loss).c_str(), event.skipped ? " skipped" : "");
      if (on_step) on_step(event.step);
    }
    void evaluation(const EvaluationEvent& event) override {
      std::printf("scored %lld %s %s %lld\n", static_cast<long long>(event.step),
                  shortest_decimal(event.accuracy).c_str(), shortest_decimal(event.loss).c_str(),
                  static_cast<long long>(event.samples));
    }
    void finish() override {}
    std::function<void(std::int64_t)> on_step;
  } sink;
  const Event term = arguments.event("term");
  sink.on_step = [&](std::int64_t now) {
    pass = 0;
    if (term.is(group, std::to_string(now))) terminate(checkpointer);
  };
  Trainer trainer({.state = state,
                   .checkpointer = checkpointer,
                   .model = net,
                   .data = data,
                   .step = step,
                   .learning_rate = [](std::int64_t) { return 0.05; },
                   .resumed =
                       [&](const Resumed& from) {
                         std::printf("resumed %lld %s\n", static_cast<long long>(from.step),
                                     from.bit_exact ? "exact" : "not-exact");
                       },
                   .test_data = &test_data,
                   .score =
                       [&](const Batch& batch) {
                         if (term.is(group, "eval")) terminate(checkpointer);
                         const auto count = static_cast<double>(batch.inputs.size(0));
                         // The buffer is a part of the answer: rank 0's has to be everybody's.
                         const double value = loss_of(net, batch).item<double>() + net.seen.item<double>();
                         return Score{.correct = count / 2, .loss_sum = value * count};
                       },
                   .sinks = {&sink}},
                  {.steps = steps});
  const int code = trainer.run();
  std::printf("parameters %s\n%s\n", digest_of_parameters(net).c_str(), to_line(trainer.result()).c_str());
  std::fflush(stdout);
  group.leave();
  return code;
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  using namespace holdfast::test;
  return holdfast::run([&] { return train(argv[1], std::atoll(argv[2]), Arguments(argc, argv)); });
}
