// One rank of a training with checkpoints: dist_agreement RUN-DIRECTORY STEPS [apart|sharded] [WHAT RANK
// STEP]. WHAT happens to that rank once, at that step of a first attempt: `term` or `kill` or `stop`, the
// signals. `apart` trains without an exchange of gradients, so that nobody but the Agreement can notice;
// `sharded` with the optimizer's slots spread over the ranks.
#include <signal.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "dist/small_net.h"
#include "holdfast/base/last_words.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

struct Event {
  std::string what;
  int rank = -1;
  std::int64_t step = -1;
};

// Returns once it has been heard.
void happen(const Event& event, const Checkpointer& checkpointer) {
  if (event.what == "kill") raise(SIGKILL);
  if (event.what == "stop") raise(SIGSTOP);
  if (event.what != "term") return;
  raise(SIGTERM);
  for (int i = 0; i < 30'000 && checkpointer.stop_reason().empty(); ++i) std::this_thread::sleep_for(1ms);
}

int train(const std::string& directory, std::int64_t steps, const std::string& how, const Event& event) {
  const bool apart = how == "apart";
  ProcessGroup group({.timeout = event.what == "stop" ? 20s : 300s});
  Agreement agreement(group);
  torch::manual_seed(5);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::optional<DataParallel> parallel;
  if (!apart) parallel.emplace(net, group);
  std::optional<ShardedOptimizer> sharded;
  if (how == "sharded") sharded.emplace(optimizer, net, group);
  if (apart) net.eval();  // the streams of the ranks differ
  torch::manual_seed(100 + static_cast<std::uint64_t>(group.rank()));
  TrainState state;
  state.add("model", net);
  if (sharded) {
    state.add("optimizer", *sharded);
  } else {
    state.add("optimizer", optimizer);
  }
  if (parallel) state.add("gradients", *parallel);

  Checkpointer checkpointer(state, {.directory = directory,
                                    .every = {SaveEvery::steps(5)},
                                    .notices = {.cloud = false, .term_grace = 120s},
                                    .ranks = {.channel = &agreement}});
  const Resumed resumed = checkpointer.resume();
  std::printf("resumed %lld %s\n", static_cast<long long>(resumed.step),
              resumed.bit_exact ? "exact" : "not-exact");
  std::fflush(stdout);
  while (state.step() < steps) {
    const auto inputs = inputs_of(state.step(), apart ? 0 : group.rank(), apart ? 1 : group.world_size());
    sharded ? sharded->zero_grad() : optimizer.zero_grad();
    if (parallel) parallel->before_forward();
    const torch::Tensor loss = (net.forward(inputs) - inputs.narrow(1, 0, 4)).square().mean();
    if (sharded) {
      parallel->backward(loss, Gradients::accumulate);
      sharded->step();
    } else {
      parallel ? parallel->backward(loss) : loss.backward();
      optimizer.step();
    }
    const Decision decision = checkpointer.after_step({.loss = loss.item<double>()});
    if (decision.stop) break;
    if (resumed.fresh && event.rank == group.rank() && event.step == state.step()) {
      happen(event, checkpointer);
    }
  }
  const int code = checkpointer.finish();
  std::printf("state %lld %s\n", static_cast<long long>(state.step()),
              to_hex(checkpointer.state_digest()).c_str());
  std::fflush(stdout);
  group.leave();
  return code;
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  using namespace holdfast::test;
  if (argc < 3) return 64;
  Event event;
  std::string how;
  int next = 3;
  if (next < argc && (std::string(argv[next]) == "apart" || std::string(argv[next]) == "sharded")) {
    how = argv[next++];
  }
  if (next + 2 < argc) event = {argv[next], std::atoi(argv[next + 1]), std::atoll(argv[next + 2])};
  return holdfast::run([&] { return train(argv[1], std::atoll(argv[2]), how, event); });
}
