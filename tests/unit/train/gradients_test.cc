// Gradients at a step boundary. However a program clears them, a resumed run goes on bit by bit, also for a
// layer that not every step uses: an optimizer skips a parameter without a gradient, and one with zeros decays.
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace to = torch::optim;

constexpr std::int64_t kSteps = 9;

using Parameters = std::vector<at::Tensor>;
using Make = std::function<std::unique_ptr<to::Optimizer>(const Parameters&)>;

template <class Optimizer, class Options>
Make of(Options options) {
  return [options](const Parameters& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

// How the program clears gradients.
enum class Clears { before_backward, after_step };

struct Loop {
  Make make = of<to::SGD>(to::SGDOptions(0.05).momentum(0.9).weight_decay(0.1));
  bool to_none = true;
  Clears when = Clears::before_backward;
  bool through_module = false;    // Module::zero_grad()
  std::int64_t second_every = 0;  // the second layer's own optimizer: an update with so many steps' gradients
  bool keeps = false;             // keep_gradients()
};

struct Program {
  explicit Program(const Loop& how) : loop(how) {
    torch::manual_seed(1);
    first = torch::nn::Linear(4, 4);
    second = torch::nn::Linear(4, 4);
    state.add("first", *first);
    state.add("second", *second);
    Parameters all = first->parameters();
    const Parameters others = second->parameters();
    if (loop.second_every == 0) {
      all.insert(all.end(), others.begin(), others.end());
    } else {
      slow = loop.make(others);
      state.add("slow", *slow);
    }
    optimizer = loop.make(all);
    state.add("optimizer", *optimizer);
    if (loop.keeps) state.keep_gradients("slow");
  }
  void clear(to::Optimizer& which) {
    if (loop.through_module) {
      first->zero_grad(loop.to_none);
      second->zero_grad(loop.to_none);
    } else {
      which.zero_grad(loop.to_none);
    }
  }
  void step() {
    const bool used = loop.second_every > 0 || state.step() % 3 == 0;
    const at::Tensor input = at::randn({8, 4});
    if (loop.when == Clears::before_backward) clear(*optimizer);
    at::Tensor output = first->forward(input);
    if (used) output = second->forward(output);
    (output - 1).pow(2).mean().backward();
    optimizer->step();
    if (loop.when == Clears::after_step) clear(*optimizer);
    if (slow && (state.step() + 1) % loop.second_every == 0) {
      slow->step();
      slow->zero_grad(loop.to_none);
    }
    state.advance({});
  }
  void train_to(std::int64_t last) {
    while (state.step() < last) step();
  }

  Loop loop;
  torch::nn::Linear first{nullptr}, second{nullptr};
  std::unique_ptr<to::Optimizer> optimizer, slow;
  TrainState state;
};

// Killed at each step from `first` on.
void expect_bit_exact(const Loop& loop, std::int64_t first = 1) {
  Program straight(loop);
  straight.train_to(kSteps);
  const std::string expected = digest(straight.state);
  for (std::int64_t killed = first; killed < kSteps; ++killed) {
    SCOPED_TRACE("killed at step " + std::to_string(killed));
    std::shared_ptr<Snapshot> saved;
    {
      Program before(loop);
      // A save at each step, as a test of a real run would have.
      while (before.state.step() < killed) {
        before.step();
        saved = stage(before.state);
      }
    }
    Program after(loop);
    after.state.load(*saved, {});
    after.step();
    const auto again = stage(after.state);  // and killed again after one step
    after.train_to(kSteps);
    EXPECT_EQ(digest(after.state), expected);
    Program third(loop);
    third.state.load(*again, {});
    third.train_to(kSteps);
    EXPECT_EQ(digest(third.state), expected) << "in the third life";
  }
}

struct Case {
  std::string name;
  Make make;
};
std::ostream& operator<<(std::ostream& out, const Case& value) { return out << value.name; }

class GradientsOf : public testing::TestWithParam<Case> {};

TEST_P(GradientsOf, AreAtABoundaryAsTheProgramClearsThem) {
  for (const bool to_none : {true, false}) {
    for (const Clears when : {Clears::before_backward, Clears::after_step}) {
      for (const bool through_module : {false, true}) {
        SCOPED_TRACE(std::string(to_none ? "to none" : "to zeros") +
                     (when == Clears::after_step ? " after the step" : "") +
                     (through_module ? " by the module" : ""));
        expect_bit_exact(
            {.make = GetParam().make, .to_none = to_none, .when = when, .through_module = through_module});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GradientsOf,
    testing::Values(Case{"SGD", of<to::SGD>(to::SGDOptions(0.05).momentum(0.9).weight_decay(0.1))},
                    Case{"SGDWithoutMomentum", of<to::SGD>(to::SGDOptions(0.05).weight_decay(0.1))},
                    Case{"Adam", of<to::Adam>(to::AdamOptions(0.05).weight_decay(0.1))},
                    Case{"AdamW", of<to::AdamW>(to::AdamWOptions(0.05))},
                    Case{"RMSprop", of<to::RMSprop>(to::RMSpropOptions(0.05).momentum(0.9))},
                    Case{"FusedSgd", of<FusedSgd>(to::SGDOptions(0.05).momentum(0.9).weight_decay(0.1))},
                    Case{"FusedAdam", of<FusedAdam>(to::AdamOptions(0.05).weight_decay(0.1))},
                    Case{"FusedAdamW", of<FusedAdamW>(to::AdamWOptions(0.05))},
                    Case{"Lamb", of<Lamb>(LambOptions(0.05))}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// The ordinary loop pays nothing: its checkpoints know nothing of gradients once the program was seen.
TEST(Gradients, OfTheOrdinaryLoopAreNotRecorded) {
  CapturedLog log;
  Program program({});
  program.train_to(2);
  const auto snapshot = stage(program.state);
  EXPECT_FALSE(snapshot->attributes.has("state.gradients"));
  Program next(Loop{});
  next.state.load(*snapshot, {});
  for (const at::Tensor& parameter : next.first->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(log.text(), "");
}

TEST(Gradients, ThatWereZeroedInPlaceAreRecordedByName) {
  Program program({.to_none = false});
  program.train_to(3);
  const auto snapshot = stage(program.state);
  EXPECT_THAT(snapshot->attributes.get_strings("state.gradients"),
              testing::ElementsAre("first/weight", "first/bias", "second/weight", "second/bias"));
  Program next({.to_none = false});
  next.state.load(*snapshot, {});
  EXPECT_EQ(next.second->weight.grad().count_nonzero().item<std::int64_t>(), 0);
  EXPECT_FALSE(holds(*snapshot, "state/gradient/second/weight"));
}

// A file of an older version, and weights alone, bring none.
TEST(Gradients, AreNotMadeOfFilesWithoutThem) {
  Program program({.to_none = false});
  program.train_to(3);
  const auto snapshot = stage(program.state);
  Program weights({.to_none = false});
  weights.state.load(*snapshot, {.weights_only = true});
  EXPECT_FALSE(weights.first->weight.grad().defined());
  snapshot->attributes.erase("state.gradients");
  Program older({.to_none = false});
  older.state.load(*snapshot, {});
  EXPECT_FALSE(older.first->weight.grad().defined());
}

// An optimizer that updates with the gradients of several steps. At step 1 nobody can know that yet.
TEST(Gradients, ThatAnOptimizerCarriesOverSeveralStepsAreSaved) {
  for (const bool to_none : {true, false}) {
    for (const std::int64_t every : {3, 4, 5}) {
      SCOPED_TRACE("an update every " + std::to_string(every) + " steps" + (to_none ? "" : ", to zeros"));
      expect_bit_exact({.to_none = to_none, .second_every = every}, 2);
    }
  }
}

TEST(Gradients, ThatAreCarriedAreNamed) {
  CapturedLog log;
  Program program({.second_every = 4});
  program.train_to(3);
  EXPECT_TRUE(holds(*stage(program.state), "state/gradient/second/weight"));
  EXPECT_FALSE(holds(*stage(program.state), "state/gradient/first/weight"));
  const std::string text = log.text();
  EXPECT_THAT(text,
              HasSubstr("gradients of 'slow' outlive after_step(), and a backward pass adds to them: from "
                        "step 2 on, checkpoints hold them (80 bytes more)"));
  EXPECT_THAT(text, Not(HasSubstr("'optimizer'")));
}

// An update every second step looks like the ordinary loop, and its first step like any other.
TEST(Gradients, AreSavedOnRequest) {
  CapturedLog log;
  for (const bool to_none : {true, false}) {
    for (const std::int64_t every : {2, 4}) {
      SCOPED_TRACE("an update every " + std::to_string(every) + " steps" + (to_none ? "" : ", to zeros"));
      expect_bit_exact({.to_none = to_none, .second_every = every, .keeps = true}, 1);
    }
  }
  EXPECT_EQ(log.text(), "") << "it was asked for";
  Program program({.second_every = 2});
  EXPECT_THROW(program.state.keep_gradients("fast"), UsageError);
}

}}  // namespace holdfast::test
