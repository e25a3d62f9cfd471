// One rank of a training to which things happen: dist_story RUN-DIRECTORY STEPS [KEY=VALUE …].
//
//   every=5 keep=3 limit=0    steps between saves, files that stay, MB/s that a write may take
//   timeout=60 silence=6      the group's, in seconds
//   apart=1                   no exchange of gradients: nobody but the Agreement can notice anything
//   floats=0 pause=0          more of them in the state; milliseconds of pause in each step
//   fixed=1                   what happens, happens in every life, not in a fresh one alone
//   at=WHAT:RANK:STEP         to that rank, after that step (+STEP: so many after the life's first)
//   evaluate=STEP             all evaluate together after that step, with averaged weights and random
//                             numbers, until each finds RUN-DIRECTORY.go
//   late=0                    milliseconds by which the last rank comes later to that
//   lost=HOW:RANK:SIGNAL      no training: that rank is sent the signal while the others wait for it in
//                             `hear`, `ballot`, `gradients`, `exchange` or `leave`; they tell how long
//   votes=ROUNDS              no training: so many votes of all; they tell how many had a wrong result
//   unread=1                  no training: all but rank 0 vote, and nobody reads the result
//   mount=1                   the run directory's parent is a mount point
//   busy=RANK                 that one sleeps for half a minute first
//
// WHAT: term, kill, stop (signals to itself), wait (until RUN-DIRECTORY.go is there), evaluate (for three
// seconds), leave (the loop, alone), save (asks for one).
#include <signal.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dist/small_net.h"
#include "holdfast/base/error.h"
#include "holdfast/base/last_words.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

class Story {
 public:
  Story(int argc, char** argv) : directory(argv[1]), steps(std::atoll(argv[2])) {
    for (int i = 3; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      given_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    const auto found = given_.find(key);
    return found == given_.end() ? otherwise : std::atoll(found->second.c_str());
  }
  struct Event {
    std::string what;
    int rank = -1;
    std::string when;
  };
  Event event(const std::string& key) const {
    const auto found = given_.find(key);
    if (found == given_.end()) return {};
    const std::string& text = found->second;
    const auto first = text.find(':');
    const auto second = text.find(':', first + 1);
    return {text.substr(0, first), std::atoi(text.c_str() + first + 1), text.substr(second + 1)};
  }

  const std::string directory;
  const std::int64_t steps;

 private:
  std::map<std::string, std::string> given_;
};

template <class... Values>
void say(const char* format, Values... values) {
  std::printf(format, values...);
  std::fflush(stdout);
}

// By this process, from files and pipes.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  std::uint64_t bytes = 0;
  io >> word >> bytes;  // "rchar: 123"
  return bytes;
}

// Returns once it has been heard.
void happen(const Story& story, const std::string& what, Checkpointer& checkpointer) {
  if (what == "kill") raise(SIGKILL);
  if (what == "stop") raise(SIGSTOP);
  if (what == "save") checkpointer.save();
  if (what == "evaluate") {
    const Checkpointer::EvaluationScope scope(checkpointer);
    std::this_thread::sleep_for(3s);
  }
  for (int i = 0; what == "wait" && i < 120'000 && !std::filesystem::exists(story.directory + ".go"); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  if (what != "term") return;
  raise(SIGTERM);
  for (int i = 0; i < 30'000 && checkpointer.stop_reason().empty(); ++i) std::this_thread::sleep_for(1ms);
}

// Nothing that it does to memory belongs into a checkpoint of this step.
void evaluate(const Story& story, Net& net, ProcessGroup& group, Checkpointer& checkpointer) {
  const bool last = group.rank() == group.world_size() - 1;
  if (last) std::this_thread::sleep_for(std::chrono::milliseconds(story.number("late", 0)));
  const Checkpointer::EvaluationScope scope(checkpointer);
  say("evaluating %lld\n", static_cast<long long>(story.number("evaluate", 0)));
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> kept;
  for (torch::Tensor& parameter : net.parameters()) {
    kept.push_back(parameter.clone());
    parameter.mul_(0.5);
  }
  torch::rand(100);
  for (double all = 0; all < group.world_size();) {
    std::vector<at::Tensor> found = {
        torch::full({1}, std::filesystem::exists(story.directory + ".go") ? 1.0 : 0.0)};
    group.guard("an evaluation", [&] { group.c10d()->allreduce(found)->wait(); });
    all = found[0].item<double>();
    std::this_thread::sleep_for(5ms);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) net.parameters()[i].copy_(kept[i]);
  say("evaluated %lld\n", static_cast<long long>(story.number("evaluate", 0)));
}

int train(const Story& story, ProcessGroup& group, Agreement& agreement) {
  const bool apart = story.number("apart", 0) != 0;
  torch::manual_seed(5);
  Net net(story.number("floats", 0));
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::optional<DataParallel> parallel;
  if (!apart) parallel.emplace(net, group);
  if (apart) net.eval();  // the streams of the ranks differ
  torch::manual_seed(100 + static_cast<std::uint64_t>(group.rank()));
  TrainState state;
  state.add("model", net);
  state.add("optimizer", optimizer);
  if (parallel) state.add("gradients", *parallel);

  const std::filesystem::path parent = std::filesystem::path(story.directory).parent_path();
  Checkpointer checkpointer(state, {.directory = story.directory,
                                    .mount = story.number("mount", 0) != 0 ? parent : "",
                                    .every = {SaveEvery::steps(story.number("every", 5))},
                                    .keep = KeepLast{static_cast<int>(story.number("keep", 3))},
                                    .notices = {.cloud = false, .term_grace = 120s},
                                    .writing = {.write_limit = static_cast<double>(story.number("limit", 0))},
                                    .ranks = {.channel = &agreement}});
  const std::uint64_t before = bytes_read();
  const Resumed resumed = checkpointer.resume();
  say("read %llu\n", static_cast<unsigned long long>(bytes_read() - before));
  say("resumed %lld %s\n", static_cast<long long>(resumed.step), resumed.bit_exact ? "exact" : "not-exact");
  Story::Event event = story.event("at");
  if (event.rank != group.rank() || (!resumed.fresh && story.number("fixed", 0) == 0)) event = {};
  const std::int64_t when = std::atoll(event.when.c_str()) + (event.when.starts_with("+") ? resumed.step : 0);
  bool failing = false;
  const std::int64_t evaluates = story.number("evaluate", -1);
  if (resumed.evaluation_due && state.step() == evaluates) evaluate(story, net, group, checkpointer);
  while (state.step() < story.steps) {
    const auto inputs = inputs_of(state.step(), apart ? 0 : group.rank(), apart ? 1 : group.world_size());
    std::this_thread::sleep_for(std::chrono::milliseconds(story.number("pause", 0)));
    optimizer.zero_grad();
    if (parallel) parallel->before_forward();
    const torch::Tensor loss = (net.forward(inputs) - inputs.narrow(1, 0, 4)).square().mean();
    parallel ? parallel->backward(loss) : loss.backward();
    optimizer.step();
    const Decision decision = checkpointer.after_step(
        {.loss = loss.item<double>(), .evaluation_due = state.step() + 1 == evaluates});
    if (decision.saved) say("saved %lld\n", static_cast<long long>(state.step()));
    if (decision.failure && !failing) {
      say("failing %lld %s\n", static_cast<long long>(state.step()), decision.failure->c_str());
    }
    if (!decision.failure && failing) say("well %lld\n", static_cast<long long>(state.step()));
    failing = decision.failure.has_value();
    if (decision.stop) break;
    if (state.step() == evaluates) evaluate(story, net, group, checkpointer);
    if (when != state.step() || event.what.empty()) continue;
    say("now %lld\n", static_cast<long long>(state.step()));
    if (event.what == "leave") break;
    happen(story, event.what, checkpointer);
  }
  const int code = checkpointer.finish();
  say("state %lld %s\n", static_cast<long long>(state.step()), to_hex(checkpointer.state_digest()).c_str());
  group.leave();
  return code;
}

void wait_for_lost(const std::string& how, int rank, ProcessGroup& group, Agreement& agreement) {
  if (how == "hear") agreement.hear(rank, "never", 5min);
  if (how == "exchange") group.exchange("a test", "");
  if (how == "leave") group.leave();
  if (how == "gradients") {
    group.guard("gradients", [&] {
      std::vector<at::Tensor> tensors = {torch::ones({1000})};
      group.c10d()->allreduce(tensors)->wait();
    });
  }
  if (how == "ballot") {
    agreement.post({});
    while (!agreement.result(50ms)) {
    }
  }
}

int lose(const Story::Event& loss, int busy, ProcessGroup& group, Agreement& agreement) {
  const auto all_are_here = group.exchange("a test", "here");
  int other = loss.rank;
  if (group.rank() == loss.rank) {
    std::this_thread::sleep_for(1s);
    raise(std::atoi(loss.when.c_str()));
    other = loss.rank == 0 ? 1 : 0;  // one that goes on waits for others
  }
  if (group.rank() == busy) std::this_thread::sleep_for(30s);
  const auto began = std::chrono::steady_clock::now();
  try {
    wait_for_lost(loss.what, other, group, agreement);
  } catch (const GroupError& error) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    say("noticed %.1f %s\n", took.count(), error.what());
    return 75;
  }
  return 1;
}

// Not all are equally quick; rank 0 casts its first vote when the others have found that it is missing.
int vote(std::int64_t rounds, ProcessGroup& group, Agreement& agreement) {
  const int rank = group.rank();
  const int ranks = group.world_size();
  int wrong = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (rank == round % ranks) std::this_thread::sleep_for(100us);
    for (int other = 1; round == 0 && rank == 0 && other < ranks; ++other)
      agreement.hear(other, "asked", 5min);
    agreement.post({round, rank, -rank, (round + rank) % ranks});
    if (round == 0 && rank > 0) {
      if (agreement.result(20ms)) return 1;
      agreement.tell("asked", "");
    }
    std::optional<Ballot> largest;
    while (!largest) largest = agreement.result(10ms);
    if (*largest != Ballot{round, ranks - 1, 0, ranks - 1}) ++wrong;
  }
  say("wrong %d\n", wrong);
  group.leave();
  return 0;
}

int live(const Story& story) {
  ProcessGroup group({.timeout = std::chrono::seconds(story.number("timeout", 60)),
                      .silence = std::chrono::seconds(story.number("silence", 6))});
  if (story.number("unread", 0) != 0) {
    {
      Agreement unread(group);
      unread.post({});
      while (!unread.result(10ms)) {
      }
      // Everybody has connected: whoever leaves now cuts no handshake.
      if (group.rank() > 0) unread.post({});
    }
    group.leave();
    return 0;
  }
  Agreement agreement(group);
  if (const auto rounds = story.number("votes", 0); rounds > 0) return vote(rounds, group, agreement);
  const Story::Event loss = story.event("lost");
  return loss.what.empty() ? train(story, group, agreement)
                           : lose(loss, static_cast<int>(story.number("busy", -1)), group, agreement);
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  using namespace holdfast::test;
  return holdfast::run([&] { return live({argc, argv}); });
}
