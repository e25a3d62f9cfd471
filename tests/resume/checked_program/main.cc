// A small trainer with everything that decides the next step, each of which can be left out of the state:
//
//   resume_checked RUN_DIRECTORY [model|optimizer|data|rate|hidden|engine|average|late|printed|crash|resumed_crash|none]
//
// Or a file beside its run: ring (the last 8 inputs), slack (with room for 1024 more).
//
// Or a value that matters from step 30 on (phase), or in two steps after step 32 (stage); a part that comes
// late (added, group); the best value, which only a file beside the run shows (best; kept_best: in the state).
//
// Or what is wrong with it otherwise: loss (it reports none), deaf (it ignores the stop), hangs (at step 10),
// lingers (after the stop), ranks (it is one of two).
#include <fcntl.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "holdfast/holdfast.h"

namespace {

// The other rank never answers; a Checkpointer in a trial does not ask it.
class OneOfTwo final : public holdfast::RankChannel {
 public:
  int rank() const noexcept override { return 0; }
  int world_size() const noexcept override { return 2; }
  holdfast::Duration timeout() const noexcept override { return {}; }
  void post(const holdfast::Ballot&) override {}
  std::optional<holdfast::Ballot> result(holdfast::Duration) override { return {}; }
  [[noreturn]] void give_up(const std::string& what, holdfast::Duration) override {
    throw std::runtime_error(what);
  }
  void tell(const std::string&, std::string_view) override {}
  std::string hear(int, const std::string&, holdfast::Duration) override { return {}; }
  void forget(const std::string&) override {}
  void broadcast(std::span<std::byte>) override {}
};

// What the loop keeps beside modules and optimizers.
struct Numbers {
  std::int64_t position = 0;
  double rate = 0.05;
  double hidden = 0;
  double average = 0;
  std::int64_t stage = 0;
  double best = -1;
  std::mt19937 engine{5};
  std::string left_out = {};

  void save(holdfast::StateWriter& out) const {
    if (left_out != "data") out.put("position", position);
    if (left_out != "rate") out.put("rate", rate);
    if (left_out != "hidden") out.put("hidden", hidden);
    if (left_out != "average") out.put("average", average);
    if (left_out == "stage") out.put("stage", stage);
    if (left_out == "kept_best") out.put("best", best);
    std::ostringstream text;
    text << engine;
    if (left_out != "engine") out.put("engine", text.str());
  }
  void load(const holdfast::StateReader& in) {
    if (in.has("position")) position = in.get_int("position");
    if (in.has("rate")) rate = in.get_double("rate");
    if (in.has("hidden")) hidden = in.get_double("hidden");
    if (in.has("average")) average = in.get_double("average");
    if (in.has("stage")) stage = in.get_int("stage");
    if (in.has("best")) best = in.get_double("best");
    if (in.has("engine")) std::istringstream(in.get_string("engine")) >> engine;
  }
};

// The last 8 inputs, in a file beside the run. A slot is written again after 8 steps, or after `slots`.
class Ring {
 public:
  Ring(const std::filesystem::path& path, std::int64_t slots)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT, 0600)), slots_(slots) {}
  ~Ring() { ::close(file_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Stores the input of step `at`, and returns the oldest one.
  double turn(std::int64_t at, double input) {
    if (::pwrite(file_, &input, sizeof input, at % slots_ * 8) != 8) throw std::runtime_error("ring");
    double oldest = 0;
    if (at >= 7 && ::pread(file_, &oldest, sizeof oldest, (at - 7) % slots_ * 8) != 8) {
      throw std::runtime_error("ring");
    }
    return oldest;
  }

 private:
  int file_;
  std::int64_t slots_;
};

[[noreturn]] void hang() {
  std::fprintf(stderr, "planted hang\n");
  while (true) ::pause();
}

int train(const std::string& directory, const std::string& left_out, const std::string& best_file) {
  torch::manual_seed(3);
  torch::nn::Linear first(4, 4);
  torch::nn::Linear second(4, 1);
  torch::optim::Adam first_optimizer(first->parameters(), torch::optim::AdamOptions(0.02));
  torch::optim::Adam second_optimizer(second->parameters(), torch::optim::AdamOptions(0.02));
  torch::nn::Linear late_part(2, 2);
  Numbers kept;
  holdfast::TrainState state;
  state.add("first", *first);
  state.add("first_optimizer", first_optimizer);
  if (left_out != "model") state.add("second", *second);
  if (left_out != "model" && left_out != "optimizer") state.add("second_optimizer", second_optimizer);
  if (left_out == "group") state.add("late", *late_part);
  kept.left_out = left_out;
  state.add("kept", kept);
  OneOfTwo other;
  holdfast::CheckpointerOptions options;
  options.directory = directory;
  if (left_out == "ranks") options.ranks.channel = &other;
  holdfast::Checkpointer checkpointer(state, options);
  std::optional<Ring> ring;
  if (left_out == "ring" || left_out == "slack") {
    ring.emplace(checkpointer.directory().parent_path() / "ring", left_out == "ring" ? 8 : 8 + 1024);
  }
  const std::filesystem::path best =
      best_file.empty() ? checkpointer.directory().parent_path() / "best" : std::filesystem::path(best_file);
  double begun_late = 0;
  checkpointer.resume();
  const std::int64_t began = state.step();
  while (state.step() < 1000) {
    const at::Tensor input = torch::full({2, 4}, static_cast<double>(kept.position % 7) / 7) +
                             static_cast<double>(kept.engine() % 100) / 1000 + kept.hidden +
                             torch::rand({2, 4});
    const at::Tensor loss =
        (second->forward(torch::tanh(first->forward(input))) - kept.average).pow(2).mean();
    first_optimizer.zero_grad();
    second_optimizer.zero_grad();
    (loss * kept.rate).backward();
    checkpointer.before_update();
    first_optimizer.step();
    second_optimizer.step();
    ++kept.position;
    kept.rate *= 0.99;
    const double value = loss.item<double>() * kept.rate;
    kept.hidden = 0.5 * kept.hidden + 0.1 * value;
    if (ring) kept.hidden += ring->turn(kept.position, value);
    if (left_out == "phase" && kept.position >= 30) kept.hidden += begun_late += 0.1;
    if (left_out == "stage" && kept.position == 33) kept.stage = 1, begun_late = 0.1;
    if (left_out == "stage" && kept.position > 33 && kept.position < 36) kept.hidden += begun_late;
    if (left_out == "added" && kept.position == 10) state.add("late", *late_part);
    if (left_out == "group" && kept.position == 10) {
      first_optimizer.add_param_group(torch::optim::OptimizerParamGroup(late_part->parameters()));
    }
    kept.average = 0.9 * kept.average + 0.1 * value;
    if (left_out == "crash" && state.step() == 10) throw std::runtime_error("planted crash");
    if (left_out == "resumed_crash" && state.step() == began + 3 && began > 0)
      throw std::runtime_error("planted crash");
    if (left_out == "hangs" && state.step() == 10) hang();
    holdfast::StepReport report;
    report.applied = holdfast::Cursor{kept.position / 20, kept.position % 20};
    if (left_out != "loss") report.loss = value;
    if (checkpointer.after_step(report).stop && left_out != "deaf") break;
    if (left_out == "late") kept.hidden += torch::rand({1}).item<double>();
    if (kept.position % 5 == 0) {
      checkpointer.metric("measured", value);
      if (left_out.ends_with("best") && value > kept.best) std::ofstream(best) << (kept.best = value);
    }
    std::printf("%ld %a\n", long{state.step()}, value);
    if (left_out == "printed") std::printf("process %d\n", static_cast<int>(::getpid()));
  }
  if (left_out == "lingers") hang();
  return checkpointer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc > 1 ? train(argv[1], argc > 2 ? argv[2] : "none", argc > 3 ? argv[3] : "") : 64;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "resume_checked: %s\n", error.what());
    return 70;
  }
}
