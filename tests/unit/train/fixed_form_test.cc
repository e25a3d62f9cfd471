// A program that starts again makes its parts as this one did, and then loads. A state that such a start could not
// load is refused where it is first saved, by name; what a load brings back may change freely.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/optim/ema.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// Two layers whose weights may be tied, two that share one memory, and a buffer.
struct FormNet : torch::nn::Module {
  FormNet() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(3, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    second = register_module("second", torch::nn::Linear(3, 3));
    tied = register_module("tied", torch::nn::Linear(3, 3));
    tied->weight.set_data(second->weight.detach());
    const at::Tensor flat = at::ones({8});
    left = register_parameter("left", flat.narrow(0, 0, 4).view({2, 2}));
    right = register_parameter("right", flat.narrow(0, 4, 4).view({2, 2}));
    seen = register_buffer("seen", at::zeros({3}));
  }
  at::Tensor loss() {
    const at::Tensor x = at::full({4, 3}, 0.5, first->weight.options());
    return second->forward(norm->forward(first->forward(x))).square().mean() + left.sum() + right.sum();
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, tied{nullptr}, late{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor left, right, seen;
};

// A user's own part, which writes what it has.
struct Notebook {
  void save(StateWriter& out) const {
    out.option("level", level);
    if (second_option) out.option("mode", std::string("fast"));
    out.put("pages", pages);
    if (margin.defined()) out.put_tensor("margin", margin);
    if (inner.defined()) out.put_tensor("margin/inner", inner);
  }
  void load(const StateReader& in) {
    pages = in.get_int("pages");
    margin = in.has_tensor("margin") ? in.get_tensor("margin") : at::Tensor();
  }
  std::int64_t level = 1, pages = 0;
  bool second_option = false;
  at::Tensor margin, inner;
};

OptimizerParamGroup group_of(std::vector<at::Tensor> parameters) {
  return OptimizerParamGroup(std::move(parameters));
}

// A program with all kinds of parts.
struct FormProgram {
  explicit FormProgram(const std::filesystem::path& directory, CheckpointerOptions options = {})
      : optimizer(std::vector<OptimizerParamGroup>{group_of(net.first->parameters()),
                                                   group_of({net.second->weight, net.left, net.right})},
                  SGDOptions(0.1)),
        averages(net) {
    net.first->bias.requires_grad_(false);
    state.add("model", net);
    state.add("optimizer", optimizer);
    state.add("averages", averages);
    state.add("notebook", notebook);
    state.value("hidden", hidden);
    state.value("loop", std::tie(best, history));
    options.directory = directory;
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    checkpointer = std::make_unique<Checkpointer>(state, options);
    resumed = checkpointer->resume();
  }
  Decision step(const std::function<void(FormProgram&)>& change = {}) {
    optimizer.zero_grad();
    net.loss().backward();
    optimizer.step();
    averages.update();
    if (change) change(*this);
    const Decision decision = checkpointer->after_step({.applied = {{0, state.step() + 1}}});
    if (decision.saved) decision.save.wait();  // a save that falls due meanwhile would come later
    return decision;
  }

  FormNet net;
  SGD optimizer;
  Ema averages;
  Notebook notebook;
  at::Tensor hidden;
  std::optional<double> best;
  std::vector<float> history;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
  Resumed resumed;
};

const CheckpointerOptions kEachStep{.every = {SaveEvery::steps(1)}};

// The text of the UsageError that `work` throws; what it throws besides is a failure.
std::string usage_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

struct Change {
  std::string name;
  std::function<void(FormProgram&)> make;
  std::string named;  // in the message
  friend std::ostream& operator<<(std::ostream& out, const Change& change) { return out << change.name; }
};

class Refused : public testing::TestWithParam<Change> {};

TEST_P(Refused, EndsTheRunWhereItIsSavedByName) {
  const test::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  CapturedLog log;
  for (int life = 0; life < 2; ++life) {
    FormProgram program(run, kEachStep);
    EXPECT_EQ(program.resumed.step, life == 0 ? 0 : 2) << "the newest that a start can load stands";
    while (program.state.step() < 2) program.step();
    const std::string text = usage_error_of([&] { program.step(GetParam().make); });
    EXPECT_THAT(text, AllOf(HasSubstr(GetParam().named), HasSubstr("no start could resume from this state"),
                            HasSubstr("train_unsaved")));
    EXPECT_EQ(program.checkpointer->finish(), 64);
    EXPECT_EQ(program.checkpointer->last_durable().step, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    FixedForm, Refused,
    testing::Values(
        Change{"GroupAdded",
               [](FormProgram& p) { p.optimizer.add_param_group(group_of({p.net.norm->weight})); },
               "'optimizer' has 3 parameter groups and had 2"},
        Change{"GroupRemoved", [](FormProgram& p) { p.optimizer.param_groups().pop_back(); },
               "'optimizer' has 1 parameter groups and had 2"},
        Change{"ParameterJoinsGroup",
               [](FormProgram& p) { p.optimizer.param_groups()[0].params().push_back(p.net.norm->bias); },
               "parameter norm.bias of 'optimizer' (in group 0) is new"},
        Change{"GroupReordered",
               [](FormProgram& p) {
                 auto& parameters = p.optimizer.param_groups()[1].params();
                 std::swap(parameters[0], parameters[1]);
               },
               "'optimizer' has its parameters in another order"},
        Change{"ModuleRegistered",
               [](FormProgram& p) { p.net.late = p.net.register_module("late", torch::nn::Linear(1, 2)); },
               "model/late.weight (float32 [2, 1]) is new"},
        Change{"ParameterRegistered",
               [](FormProgram& p) { p.net.first->register_parameter("scale", at::ones({3})); },
               "model/first.scale (float32 [3]) is new"},
        Change{"BufferRegistered", [](FormProgram& p) { p.net.register_buffer("mask", at::ones({3})); },
               "model/mask (float32 [3]) is new"},
        Change{"ModuleCast", [](FormProgram& p) { p.net.to(at::kDouble); },
               "model/first.weight is float64 [3, 3] and was float32 [3, 3]"},
        Change{"BufferCast", [](FormProgram& p) { p.net.seen.set_data(p.net.seen.to(at::kHalf)); },
               "model/seen is float16 [3] and was float32 [3]"},
        Change{"ShapeChanged", [](FormProgram& p) { p.net.seen.resize_({5}); },
               "model/seen is float32 [5] and was float32 [3]"},
        Change{"TieBroken",
               [](FormProgram& p) { p.net.tied->weight.set_data(p.net.tied->weight.detach().clone()); },
               "model/tied.weight is float32 [3, 3] and was the same tensor as model/second.weight"},
        Change{"TieMade", [](FormProgram& p) { p.net.tied->bias.set_data(p.net.second->bias.detach()); },
               "model/tied.bias is the same tensor as model/second.bias and was float32 [3]"},
        Change{"SharedMemoryTransposed",
               [](FormProgram& p) { p.net.left.set_data(p.net.left.detach().t().contiguous().t()); },
               "model/left has the strides [1, 2] and had [2, 1] in memory that it shared"},
        Change{"OptionChanges", [](FormProgram& p) { p.notebook.level = 2; },
               "option notebook.level is 2 and was 1"},
        Change{"OptionAppears", [](FormProgram& p) { p.notebook.second_option = true; },
               "option notebook.mode (\"fast\") is new"},
        Change{"SlotOfAnotherShape",
               [](FormProgram& p) {
                 auto state = std::make_unique<torch::optim::SGDParamState>();
                 state->momentum_buffer(at::ones({7}));
                 p.optimizer.state()[p.net.left.unsafeGetTensorImpl()] = std::move(state);
               },
               "optimizer/momentum_buffer/left has the shape [7], and its parameter [2, 2]"},
        Change{"StateOfAnotherClass",
               [](FormProgram& p) {
                 p.optimizer.state()[p.net.left.unsafeGetTensorImpl()] =
                     std::make_unique<torch::optim::AdamParamState>();
               },
               "the state of left in 'optimizer' is of another class than SGD's"}),
    [](const auto& info) { return info.param.name; });

// What modules and optimizers themselves refuse comes from the same place, with its own words.
TEST(FixedForm, AGroupOfParametersOfNoModuleEndsTheRun) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  FormProgram program(folder.path() / "run", kEachStep);
  program.step();
  const std::string text = usage_error_of(
      [&] { program.step([](FormProgram& p) { p.optimizer.add_param_group(group_of({at::ones({2})})); }); });
  EXPECT_THAT(text, HasSubstr("belongs to no added module"));
  EXPECT_EQ(program.checkpointer->finish(), 64);
}

class Allowed : public testing::TestWithParam<Change> {};

TEST_P(Allowed, IsSavedAndLoadedByTheSameProgram) {
  const test::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  std::string expected;
  {
    FormProgram first(run, kEachStep);
    first.step();
    first.step(GetParam().make);
    ASSERT_EQ(first.checkpointer->save().wait(), SaveStatus::durable);
    first.step();
    expected = to_hex(first.checkpointer->state_digest());
    EXPECT_EQ(first.checkpointer->finish(), 0);
  }
  FormProgram second(run, kEachStep);
  EXPECT_EQ(second.resumed.step, 3);
  EXPECT_EQ(to_hex(second.checkpointer->state_digest()), expected);
  EXPECT_EQ(second.checkpointer->finish(), 0);
}

SGDOptions& sgd_options(FormProgram& program, std::size_t group) {
  return static_cast<SGDOptions&>(program.optimizer.param_groups()[group].options());
}

INSTANTIATE_TEST_SUITE_P(
    FixedForm, Allowed,
    testing::Values(
        Change{"ALateSlot", [](FormProgram& p) { sgd_options(p, 0).momentum(0.9); }, ""},
        Change{"SlotsDropped", [](FormProgram& p) { p.optimizer.state().clear(); }, ""},
        Change{"TheRate", [](FormProgram& p) { sgd_options(p, 1).lr(0.001).weight_decay(0.1); }, ""},
        Change{"AFrozenParameterThaws", [](FormProgram& p) { p.net.first->bias.requires_grad_(true); }, ""},
        Change{"AParameterFreezes", [](FormProgram& p) { p.net.second->weight.requires_grad_(false); }, ""},
        Change{"EvaluationMode", [](FormProgram& p) { p.net.norm->eval(); }, ""},
        Change{"OtherMemory",
               [](FormProgram& p) { p.net.first->weight.set_data(p.net.first->weight.detach().clone()); },
               ""},
        Change{"OwnMemoryTransposed",
               [](FormProgram& p) {
                 p.net.first->weight.set_data(p.net.first->weight.detach().t().contiguous().t());
               },
               ""},
        Change{"AValueThatWasUndefined",
               [](FormProgram& p) {
                 p.hidden = at::ones({2, 5});
               },
               ""},
        Change{"AnOptionalAndARow",
               [](FormProgram& p) {
                 p.best = 0.5;
                 p.history.assign(9, 1.0F);
               },
               ""},
        Change{"AComponentThatGrows",
               [](FormProgram& p) {
                 p.notebook.pages = 3;
                 p.notebook.margin = at::ones({6});
               },
               ""}),
    [](const auto& info) { return info.param.name; });

TEST(FixedForm, HoldsFromTheEndOfResumeOn) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  FormProgram program(folder.path() / "run");
  program.net.register_buffer("mask", at::ones({3}));
  EXPECT_THAT(usage_error_of([&] { program.step(); }), HasSubstr("model/mask (float32 [3]) is new"))
      << "the first boundary shows it, although no save is due";
}

TEST(FixedForm, PartsAndOptionsAreRefusedAfterResume) {
  const test::TemporaryFolder folder;
  FormProgram program(folder.path() / "run");
  torch::optim::LBFGS lbfgs(program.net.parameters());
  torch::nn::Linear head(1, 1);
  Notebook notebook;
  std::int64_t phase = 0;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const auto refused = [&](const std::string& what, const std::function<void()>& add) {
    EXPECT_THAT(usage_error_of(add),
                AllOf(HasSubstr(what + " comes after resume()"), HasSubstr("before resume()")));
  };
  refused("part 'lbfgs'", [&] { program.state.add("lbfgs", lbfgs); });
  refused("part 'head'", [&] { program.state.add("head", *head); });
  refused("part 'more'", [&] { program.state.add("more", notebook); });
  refused("part 'phase'", [&] { program.state.value("phase", phase); });
  refused("part 'noise'", [&] { program.state.add_generator("noise", generator); });
  refused("option 'seed'", [&] { program.state.option("seed", std::int64_t{1}); });
  refused("option 'layout'", [&] { program.state.layout_option("layout", true); });
  program.step();
  EXPECT_EQ(program.checkpointer->finish(), 0) << "as if nothing had been asked";
  program.state.value("phase", phase);  // for another run of this state
}

TEST(FixedForm, TheLastStepIsRefusedByFinish) {
  for (const bool stopped : {false, true}) {
    const test::TemporaryFolder folder;
    CapturedLog log;
    FormProgram program(folder.path() / "run", {.every = {}});
    program.step();
    ASSERT_EQ(program.checkpointer->save().wait(), SaveStatus::durable);
    program.step();
    program.net.seen.resize_({5});
    if (stopped) program.checkpointer->request_stop("the program");
    // A start that was told to stop goes on from the durable step.
    EXPECT_EQ(program.checkpointer->finish(), stopped ? 75 : 64);
    EXPECT_THAT(program.checkpointer->stop_reason(), HasSubstr("model/seen is float32 [5]"));
    EXPECT_EQ(program.checkpointer->last_durable().step, 1);
  }
}

TEST(FixedForm, AFailedSaveOfTheProgramEndsTheRunAtTheNextBoundary) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  FormProgram program(folder.path() / "run", {.every = {}});
  program.step();
  program.net.register_buffer("mask", at::ones({3}));
  EXPECT_EQ(program.checkpointer->save().status(), SaveStatus::failed);
  EXPECT_THAT(usage_error_of([&] { program.step(); }), HasSubstr("model/mask (float32 [3]) is new"));
}

TEST(FixedForm, AProgramMayTrainUnsavedAndComeBack) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  CheckpointerOptions options = kEachStep;
  options.writing.train_unsaved = true;
  FormProgram program(folder.path() / "run", options);
  program.step();
  EXPECT_EQ(program.checkpointer->save().wait(), SaveStatus::durable);
  const Decision decision = program.step([](FormProgram& p) { p.net.seen.resize_({5}); });
  EXPECT_THAT(decision.failure.value_or(""), HasSubstr("model/seen is float32 [5]"));
  EXPECT_EQ(program.checkpointer->save().status(), SaveStatus::failed);
  program.net.seen.resize_({3});
  program.step();
  EXPECT_EQ(program.checkpointer->save().wait(), SaveStatus::durable);
  program.step([](FormProgram& p) { p.net.seen.resize_({5}); });
  EXPECT_EQ(program.checkpointer->finish(), 74);
  EXPECT_EQ(program.checkpointer->last_durable().step, 3);
}

// The first boundary shows what no save can hold, although none is due.

struct SparseProgram {
  SparseProgram(const std::filesystem::path& directory, bool train_unsaved)
      : optimizer(table->parameters(), SGDOptions(0.1).momentum(0.9)) {
    state.add("model", *table);
    state.add("optimizer", optimizer);
    CheckpointerOptions options{.directory = directory, .notices = {.hear_signals = false, .cloud = false}};
    options.writing.train_unsaved = train_unsaved;
    checkpointer = std::make_unique<Checkpointer>(state, options);
    checkpointer->resume();
  }
  Decision step() {
    optimizer.zero_grad();
    table->forward(at::ones({2}, at::kLong)).sum().backward();
    optimizer.step();
    return checkpointer->after_step();
  }
  torch::nn::Embedding table{torch::nn::EmbeddingOptions(4, 2).sparse(true)};
  SGD optimizer;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

TEST(FirstBoundary, ASlotThatNoFileCanHoldEndsTheRun) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  SparseProgram program(folder.path() / "run", false);
  const std::string text = usage_error_of([&] { program.step(); });
  EXPECT_THAT(text, AllOf(HasSubstr("'optimizer/momentum_buffer/weight' is sparse"),
                          HasSubstr("slot cannot be left out"), HasSubstr("sparse(false)")));
  EXPECT_EQ(program.checkpointer->finish(), 64);
}

TEST(FirstBoundary, AProgramMayWantNoSaves) {
  const test::TemporaryFolder folder;
  CapturedLog log;
  SparseProgram program(folder.path() / "run", true);
  for (int i = 0; i < 3; ++i) program.step();
  EXPECT_EQ(program.checkpointer->finish(), 74);
}

TEST(FirstBoundary, NamesThatClashAreRefusedAsSoonAsTheyAreWritten) {
  for (const int step : {0, 1, 3}) {
    const test::TemporaryFolder folder;
    CapturedLog log;
    const auto clash = [](FormProgram& p) { p.notebook.margin = p.notebook.inner = at::ones({1}); };
    std::unique_ptr<FormProgram> program;
    const std::string text = usage_error_of([&] {
      if (step == 0) {
        TrainState state;
        Notebook notebook;
        notebook.margin = notebook.inner = at::ones({1});
        state.add("notebook", notebook);
        Checkpointer(state, {.directory = folder.path() / "run"}).resume();
      }
      program = std::make_unique<FormProgram>(folder.path() / "run", kEachStep);
      for (int i = 1; i < step; ++i) program->step();
      program->step(clash);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("notebook/margin"), HasSubstr("cannot be stored"))) << step;
    if (program) {
      EXPECT_EQ(program->checkpointer->finish(), 64) << step;
    }
  }
}

TEST(FixedForm, ANameThatIsTooLongForSlotsIsRefusedBeforeThereAreAny) {
  struct LongNames : torch::nn::Module {
    at::Tensor weight = register_parameter(std::string(760, 'w'), at::ones({2}));
  } net;
  SGD optimizer(net.parameters(), SGDOptions(0.1).momentum(0.9));
  TrainState state;
  state.add("model", net);
  EXPECT_THAT(usage_error_of([&] { state.add(std::string(300, 'o'), optimizer); }),
              HasSubstr("a shorter one"));
  state.add(std::string(247, 'o'), optimizer);
  optimizer.step([&] {
    const at::Tensor loss = net.weight.sum();
    loss.backward();
    return loss;
  });
  EXPECT_EQ(state.describe().size(), 3U) << "the weight, its slot, the CPU's random numbers";
}

// Slots that appear with the first update, or grow with each, are no other form.
template <class Optimizer>
void expect_goes_on(const std::function<std::unique_ptr<Optimizer>(torch::nn::Linear&)>& make) {
  const test::TemporaryFolder folder;
  for (int life = 0; life < 3; ++life) {
    torch::manual_seed(1);
    torch::nn::Linear net(3, 1);
    const auto optimizer = make(net);
    TrainState state;
    state.add("model", *net);
    state.add("optimizer", *optimizer);
    Checkpointer checkpointer(state, {.directory = folder.path() / "run",
                                      .every = {SaveEvery::steps(1)},
                                      .notices = {.hear_signals = false, .cloud = false}});
    EXPECT_EQ(checkpointer.resume().step, 3 * life);
    for (int i = 0; i < 3; ++i) {
      optimizer->step([&] {
        optimizer->zero_grad();
        at::Tensor loss = (net->forward(at::ones({2, 3})) - 1).square().mean();
        loss.backward();
        return loss;
      });
      EXPECT_FALSE(checkpointer.after_step({.applied = {{0, state.step() + 1}}}).failure);
    }
    EXPECT_EQ(checkpointer.finish(), 0);
  }
}

TEST(FixedForm, AdamAndLbfgsGrow) {
  expect_goes_on<torch::optim::Adam>([](torch::nn::Linear& net) {
    return std::make_unique<torch::optim::Adam>(net->parameters(),
                                                torch::optim::AdamOptions(0.1).amsgrad(true));
  });
  expect_goes_on<torch::optim::LBFGS>([](torch::nn::Linear& net) {
    return std::make_unique<torch::optim::LBFGS>(net->parameters(),
                                                 torch::optim::LBFGSOptions(0.1).max_iter(2).history_size(5));
  });
}

}}  // namespace holdfast::test
