// An LSTM on the CPU that is told to save a thousand times while it computes: oneDNN's generated code keeps
// its stack pointer in a heap buffer for a while, and a signal handler that runs there overwrites memory.
//
//   resume_storm plain|threads|main-blocks|fork|fork-in-thread SECONDS
//
// Computes the same gradients over and over until SIGTERM is heard, or for so long: each round must have the
// bits of the first. Says `ready PID` when that process is to be told. Exit codes: 75 heard SIGTERM, all
// rounds alike; 1 some round had other bits; 2 no SIGTERM came.
#include <sys/wait.h>
#include <torch/nn/modules/rnn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/signal_source.h"

namespace {

using namespace std::chrono_literals;

// A language model's recurrent part. Products over more than 2,048 terms (time × batch, in the gradients of
// the weights) are those for which the generated code leaves the stack.
class Rounds {
 public:
  explicit Rounds(std::int64_t seed) : lstm_(torch::nn::LSTMOptions(32, 32)) {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    input_ = torch::randn({35, 96, 32});
    first_ = compute();
  }
  bool alike() { return compute() == first_; }

 private:
  std::vector<float> compute() {
    lstm_->zero_grad();
    std::get<0>(lstm_->forward(input_)).sum().backward();
    std::vector<float> gradients;
    for (const torch::Tensor& parameter : lstm_->parameters()) {
      const torch::Tensor flat = parameter.grad().contiguous();
      gradients.insert(gradients.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
    }
    return gradients;
  }

  torch::nn::LSTM lstm_;
  torch::Tensor input_;
  std::vector<float> first_;
};

struct Run {
  std::chrono::steady_clock::time_point end;
  holdfast::Monitor monitor{};
  std::atomic<bool> stopped{false};
  std::atomic<bool> wrong{false};
  std::atomic<long> rounds{0};

  void train(std::int64_t seed) {
    Rounds rounds_of_one(seed);
    while (!stopped && std::chrono::steady_clock::now() < end) {
      if (!rounds_of_one.alike()) wrong = true;
      ++rounds;
      monitor.take_checkpoint_request();
      if (monitor.stop_requested() || wrong) stopped = true;
    }
  }
};

enum class Main { trains, blocks_signals };

int train_here(std::chrono::seconds limit, int threads, Main main = Main::trains) {
  Run run{.end = std::chrono::steady_clock::now() + limit};
  run.monitor.add(std::make_unique<holdfast::SignalSource>());
  run.monitor.start();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back([&run, i] { run.train(i); });
  if (main == Main::blocks_signals) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  std::printf("ready %d\n", getpid());
  std::fflush(stdout);
  if (main == Main::trains) run.train(0);
  for (std::thread& other : others) other.join();
  std::printf("rounds=%ld\n", run.rounds.load());
  std::fflush(stdout);
  if (run.wrong) return 1;
  return run.monitor.stop_requested() ? 75 : 2;
}

int train_in_child(std::chrono::seconds limit) {
  const pid_t child = fork();
  if (child == 0) _exit(train_here(limit, 1));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string variant = argc > 1 ? argv[1] : "";
  const auto limit = std::chrono::seconds(argc > 2 ? std::stol(argv[2]) : 60);
  if (variant == "plain") return train_here(limit, 1);
  if (variant == "threads") return train_here(limit, 4);
  if (variant == "main-blocks") return train_here(limit, 4, Main::blocks_signals);
  if (variant == "fork") return train_in_child(limit);
  if (variant == "fork-in-thread") {
    int code = 70;
    std::thread([&] { code = train_in_child(limit); }).join();
    return code;
  }
  return 64;
}
