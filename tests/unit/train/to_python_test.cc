// Every optimizer that PyTorch has, too, goes on in Python: `export --all` writes what load_state_dict() takes. A
// Python with torch must take three steps as this program does; without one, LibTorch reads the file.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <istream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/format/reader.h"
#include "holdfast/format/torch_export.h"
#include "holdfast/io/posix_file_system.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/state/train_state.h"
#include "support/foreign_python.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace to = torch::optim;
using Parameters = std::vector<at::Tensor>;

struct KindOfPython {
  std::string name;  // of the case
  std::string python;
  std::function<std::unique_ptr<to::Optimizer>(Parameters weights, Parameters biases)> make;
};
void PrintTo(const KindOfPython& kind, std::ostream* out) { *out << kind.name; }

// Two groups, which differ in their rate and in their weight decay.
template <class Optimizer, class Options>
KindOfPython in_two_groups(const std::string& name, const std::string& python, const Options& options) {
  return {name, python, [=](const Parameters& weights, const Parameters& biases) {
            Options other = options;
            other.set_lr(options.get_lr() / 2);
            other.weight_decay(0);
            std::vector<to::OptimizerParamGroup> groups;
            groups.emplace_back(weights, std::make_unique<Options>(options));
            groups.emplace_back(biases, std::make_unique<Options>(other));
            return std::make_unique<Optimizer>(groups, options);
          }};
}
KindOfPython lbfgs(const std::string& name, const to::LBFGSOptions& options) {
  return {name, "LBFGS", [=](Parameters weights, const Parameters& biases) {
            weights.insert(weights.end(), biases.begin(), biases.end());
            return std::make_unique<to::LBFGS>(weights, options);
          }};
}

std::vector<KindOfPython> kinds_of_python() {
  const auto sgd = to::SGDOptions(0.05).momentum(0.9).weight_decay(0.01);
  const auto adam = to::AdamOptions(0.05).weight_decay(0.01);
  const auto adamw = to::AdamWOptions(0.05).weight_decay(0.1);
  return {
      in_two_groups<to::SGD>("SgdWithoutMomentum", "SGD", to::SGDOptions(0.05)),
      in_two_groups<to::SGD>("Sgd", "SGD", to::SGDOptions(sgd).dampening(0.3)),
      in_two_groups<to::SGD>("SgdNesterov", "SGD", to::SGDOptions(sgd).nesterov(true)),
      in_two_groups<to::Adam>("Adam", "Adam", adam),
      in_two_groups<to::Adam>("AdamAmsgrad", "Adam", to::AdamOptions(adam).amsgrad(true)),
      in_two_groups<to::AdamW>("AdamW", "AdamW", adamw),
      in_two_groups<to::RMSprop>("RmspropPlain", "RMSprop", to::RMSpropOptions(0.01)),
      in_two_groups<to::RMSprop>("Rmsprop", "RMSprop", to::RMSpropOptions(0.01).momentum(0.9).centered(true)),
      in_two_groups<to::Adagrad>("Adagrad", "Adagrad",
                                 to::AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.2)),
      in_two_groups<FusedSgd>("FusedSgd", "SGD", sgd),
      in_two_groups<FusedAdam>("FusedAdam", "Adam", adam),
      in_two_groups<FusedAdamW>("FusedAdamW", "AdamW", adamw),
      lbfgs("Lbfgs", to::LBFGSOptions(0.1).max_iter(3).history_size(4)),
      lbfgs("LbfgsWithLineSearch",
            to::LBFGSOptions(0.1).max_iter(3).history_size(4).line_search_fn("strong_wolfe")),
  };
}

struct ProgramForPython {
  explicit ProgramForPython(const KindOfPython& kind)
      : net(first_values()), optimizer(kind.make({net->weight}, {net->bias})) {}
  static torch::nn::Linear first_values() {
    torch::nn::Linear net(3, 2);
    net->to(at::kDouble);
    const at::NoGradGuard no_grad;
    net->weight.copy_(at::linspace(-1, 1, 6, at::kDouble).view({2, 3}));
    net->bias.copy_(at::linspace(0.5, 1, 2, at::kDouble));
    return net;
  }
  void step() {
    const at::Tensor input = at::arange(12, at::kDouble).view({4, 3}).div(7).sin();
    static_cast<void>(optimizer->step([&] {
      optimizer->zero_grad();
      at::Tensor loss = (net->forward(input).exp() - 1.5).square().mean();
      loss.backward();
      return loss;
    }));
  }
  at::Tensor values() const { return at::cat({net->weight.flatten(), net->bias}).detach().clone(); }
  torch::nn::Linear net;
  std::unique_ptr<to::Optimizer> optimizer;
};

// The same loop in Python, from the file on: three steps, which the other file has, and three more.
constexpr char kStepsInPython[] = R"(
import sys, torch
kind, path, to = sys.argv[1:]
state = torch.load(path)
net = torch.nn.Linear(3, 2).double()
groups = [net.weight, net.bias] if kind == "LBFGS" else [{"params": [net.weight]}, {"params": [net.bias]}]
optimizer = getattr(torch.optim, kind)(groups, lr=1.0)
net.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
x = (torch.arange(12, dtype=torch.float64).view(4, 3) / 7).sin()
def closure():
    optimizer.zero_grad()
    loss = (net(x).exp() - 1.5).square().mean()
    loss.backward()
    return loss
for _ in range(2):
    for _ in range(3): optimizer.step(closure)
    print(*(repr(v) for p in (net.weight, net.bias) for v in p.detach().flatten().tolist()))
    if to:
        state["model"], state["optimizer"] = net.state_dict(), optimizer.state_dict()
        state["step"] += 3
        torch.save(state, to)
        to = ""
)";

class ToPython : public testing::TestWithParam<KindOfPython> {
 protected:
  // Four steps from where the run stands, a checkpoint, and the whole of it as a file for torch.load.
  std::string exported(ProgramForPython& program) {
    const std::filesystem::path checkpoint = go_on(program, "run", 4);
    FileSystem& files = FileSystem::real();
    const auto from = files.open_file(checkpoint, OpenMode::read);
    const auto index = std::get<CheckpointIndex>(read_index(*from));
    const std::string path = folder_.path() / "all.pt";
    const auto made = files.open_directory(folder_.path(), false)->open("all.pt", OpenMode::create);
    EXPECT_FALSE(export_torch(*from, index, torch_training_state(index), *made));
    return path;
  }
  // Resumes in that run directory, takes steps, and returns the newest checkpoint.
  std::filesystem::path go_on(ProgramForPython& program, const std::string& run, int steps) {
    TrainState state;
    state.add("model", *program.net);
    state.add("optimizer", *program.optimizer);
    CheckpointerOptions options;
    options.directory = folder_.path() / run;
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    Checkpointer checkpointer(state, options);
    resumed_ = checkpointer.resume();
    resumed_values_ = program.values();
    for (int i = 0; i < steps; ++i) {
      program.step();
      checkpointer.after_step({.applied = Cursor{0, state.step() + 1}});
    }
    EXPECT_EQ(checkpointer.finish(), 0);
    return options.directory / checkpointer.last_durable().checkpoint;
  }
  // `theirs`: as Python has printed them.
  static void expect_near(std::istream& theirs, const at::Tensor& ours) {
    for (std::int64_t i = 0; i < ours.numel(); ++i) {
      double value = 0;
      ASSERT_TRUE(theirs >> value) << "value " << i << " is missing";
      EXPECT_NEAR(value, ours[i].item<double>(), 1e-10) << i;
    }
  }
  TemporaryFolder folder_;
  Resumed resumed_;
  at::Tensor resumed_values_;
};

TEST_P(ToPython, ThreeStepsInPythonAreThreeStepsHere) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  ProgramForPython program(GetParam());
  const std::string path = exported(program);
  const Ended ended = python.run({"-c", kStepsInPython, GetParam().python, path, ""});
  ASSERT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
  std::istringstream theirs(ended.out);
  for (int i = 0; i < 3; ++i) program.step();
  expect_near(theirs, program.values());
}

// The way back: this program resumes from what Python has made of its state, and both go on alike.
TEST_P(ToPython, ComesBackFromPython) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  ProgramForPython first(GetParam());
  const std::string path = exported(first);
  const std::string more = folder_.path() / "more.pt";
  const Ended ended = python.run({"-c", kStepsInPython, GetParam().python, path, more});
  ASSERT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
  const auto like = go_on(first, "run", 0);
  const Ended imported = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "import", more, "--to",
                                     folder_.path() / "back", "--like", like})
                             .wait();
  ASSERT_EQ(imported.exit_code, 0) << imported.out << imported.err;
  ProgramForPython program(GetParam());
  go_on(program, "back", 3);
  EXPECT_EQ(resumed_.step, 7);
  std::istringstream theirs(ended.out);
  expect_near(theirs, resumed_values_);
  expect_near(theirs, program.values());
}

// What PyTorch's optimizers look for, found by LibTorch's own reader.
TEST_P(ToPython, TheFileHasTheStateOfTheOptimizer) {
  ProgramForPython program(GetParam());
  std::ifstream file(exported(program), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const c10::IValue all = torch::pickle_load(bytes);
  const auto entry = [](const c10::IValue& dict, const std::string& key) {
    return dict.toGenericDict().at(key);
  };
  const c10::IValue optimizer = entry(all, "optimizer");
  EXPECT_FALSE(optimizer.toGenericDict().contains(std::string("other")));
  const auto group = entry(optimizer, "param_groups").toList().get(0).toGenericDict();
  for (const auto& option : group) {
    // PyTorch has None, where the checkpoint has a text.
    EXPECT_FALSE(option.value().isString() && option.value().toStringRef() == "none") << option.key();
  }
  const auto states = entry(optimizer, "state").toGenericDict();
  if (GetParam().python == "SGD" && group.at(std::string("momentum")).toDouble() == 0) return;
  for (const auto& [tensor, state] : program.optimizer->state()) {
    const auto* const lbfgs = dynamic_cast<to::LBFGSParamState*>(state.get());
    if (lbfgs == nullptr) continue;
    const c10::IValue theirs = states.at(std::int64_t{0});
    EXPECT_EQ(entry(theirs, "n_iter").toInt(), lbfgs->n_iter());
    EXPECT_EQ(entry(theirs, "func_evals").toInt(), lbfgs->func_evals());
    EXPECT_EQ(entry(theirs, "t").toDouble(), lbfgs->t());
    EXPECT_EQ(entry(theirs, "prev_loss").toDouble(), lbfgs->prev_loss());
    EXPECT_TRUE(entry(theirs, "d").toTensor().equal(lbfgs->d()));
    EXPECT_TRUE(entry(theirs, "prev_flat_grad").toTensor().equal(lbfgs->prev_flat_grad()));
    const auto expect_list = [&](const char* name, const std::deque<at::Tensor>& ours) {
      const auto list = entry(theirs, name).toList();
      ASSERT_EQ(list.size(), ours.size()) << name;
      EXPECT_GT(ours.size(), 0U);
      for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(list.get(i).toTensor().equal(ours[i]));
    };
    expect_list("old_dirs", lbfgs->old_dirs());
    expect_list("old_stps", lbfgs->old_stps());
    expect_list("ro", lbfgs->ro());
    EXPECT_EQ(states.size(), 1U);
    return;
  }
  EXPECT_EQ(states.size(), 2U);
  for (const auto& state : states) EXPECT_FALSE(state.value().toGenericDict().empty());
}

INSTANTIATE_TEST_SUITE_P(EachOptimizer, ToPython, testing::ValuesIn(kinds_of_python()),
                         [](const auto& info) { return info.param.name; });

}}  // namespace holdfast::test
