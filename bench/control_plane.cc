// What the control plane of a large run costs at rank 0: the start, signs of life, votes, and a lost host. This
// process is rank 0; the others are threads of a few child processes, over loopback.
//
//   build/release/bin/bench_control_plane [RANKS, 1024] [SECONDS of signs, 20]
//
// "rank 0" counts the processor time of this whole process: the store, its signs of life, its votes. The last
// eight ranks are one host, which is stopped (SIGSTOP) to be lost.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/c10d_store.h"
#include "holdfast/distributed/internal/listening.h"
#include "holdfast/ranks/attendance.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/roll_call.h"
#include "holdfast/ranks/store_votes.h"

namespace {

using namespace holdfast;
using namespace std::chrono_literals;

constexpr int kHost = 8;       // ranks of a host
constexpr int kProcess = 256;  // ranks of a child process
constexpr int kVotes = 20;
constexpr std::chrono::milliseconds kLimit = 5min;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Duration processor_time() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

long resident_kib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

void raise_limit_on_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// `socket`: listens, for the process that keeps the store.
std::shared_ptr<C10dStore> store_at(const LaunchEnvironment& place, std::optional<int> socket = {}) {
  c10d::TCPStoreOptions options;
  options.port = place.master_port;
  options.isServer = socket.has_value();
  options.masterListenFd = socket;
  options.waitWorkers = false;
  options.timeout = kLimit;
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(place.master_address, options),
                                     place.world_size);
}

struct Rank {
  explicit Rank(const LaunchEnvironment& place, std::optional<int> socket = {})
      : line(store_at(place, socket), "bench/") {
    if (!attend(place, Clock::real().now() + kLimit, kLimit, line)) throw std::runtime_error("too early");
  }
  void live(const LaunchEnvironment& place) {
    pulse = std::make_shared<Pulse>(store_at(place), "bench/", place.rank, place.world_size,
                                    pulse_options(place.world_size, 6s));
    line.heed(pulse->alarm());
    roll_call = std::make_shared<RollCall>(line, pulse, place.rank, place.world_size);
    votes = std::make_unique<StoreVotes>(line.store(), store_at(place), "bench/votes/", place.rank,
                                         place.world_size, pulse->alarm());
  }
  void vote(int count) {
    for (int i = 0; i < count; ++i) {
      votes->post(ballot_of({.step = i}, 0, 1));
      if (!votes->result(kLimit)) throw std::runtime_error("no result of a vote");
    }
  }
  std::string named() {
    while (!pulse->alarm()->rank) std::this_thread::sleep_for(20ms);
    return roll_call->who();
  }

  StoreLine line;
  std::shared_ptr<Pulse> pulse;
  std::shared_ptr<RollCall> roll_call;
  std::unique_ptr<StoreVotes> votes;
};

void run_rank(const LaunchEnvironment& place) {
  try {
    Rank rank(place);
    rank.live(place);
    rank.line.get("votes", kLimit);
    rank.vote(kVotes);
    const std::string who = rank.named();
    StoreLine(rank.line.store(), "bench/").bring("named", place.rank, place.world_size, who);
    std::this_thread::sleep_for(kLimit);  // until rank 0 ends this process
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", place.rank, error.what());
  }
}

pid_t start_ranks(LaunchEnvironment place, int first, int end) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::thread> ranks;
  for (int rank = first; rank < end; ++rank) {
    place.rank = rank;
    ranks.emplace_back([place] { run_rank(place); });
  }
  for (std::thread& rank : ranks) rank.join();
  _exit(0);
}

// Prints what happened since the last call.
class Account {
 public:
  void tell(const char* what, int times = 0) {
    const SteadyTime time = Clock::real().now();
    const Duration processor = processor_time();
    const double took = seconds(time - time_);
    std::printf("%-22s %8.3f s  rank 0 %8.2f ms (%5.2f %% of a core)\n", what, took,
                1e3 * seconds(processor - processor_), 100 * seconds(processor - processor_) / took);
    if (times > 0) {
      std::printf("%-22s %8.3f ms rank 0 %8.3f ms\n", "  each", 1e3 * took / times,
                  1e3 * seconds(processor - processor_) / times);
    }
    std::fflush(stdout);
    skip();
  }
  void skip() {
    time_ = Clock::real().now();
    processor_ = processor_time();
  }

 private:
  SteadyTime time_ = Clock::real().now();
  Duration processor_ = processor_time();
};

int run(int ranks, Duration signs) {
  raise_limit_on_files();
  const int listening = listen_at("127.0.0.1", 0);
  if (listening < 0) throw std::runtime_error("cannot listen");
  LaunchEnvironment place;
  place.world_size = ranks;
  place.master_address = "127.0.0.1";
  place.master_port = own_end(listening).second;
  place.job = "bench";
  std::vector<pid_t> children;
  const int last_host = ranks - kHost;
  children.push_back(start_ranks(place, last_host, ranks));
  for (int first = 1; first < last_host; first += kProcess) {
    children.push_back(start_ranks(place, first, std::min(first + kProcess, last_host)));
  }
  Account account;
  Rank zero(place, listening);
  account.tell("start: all have met");
  zero.live(place);
  account.tell("more connections");
  std::this_thread::sleep_for(2s);
  account.skip();
  std::this_thread::sleep_for(signs);
  account.tell("signs of life");
  if (!zero.pulse->lost().empty()) throw std::runtime_error("lost without a reason: " + zero.named());
  zero.line.set("votes", "");
  zero.vote(kVotes);
  account.tell("votes, without pause", kVotes);
  ::kill(children.front(), SIGSTOP);
  account.skip();
  while (!zero.pulse->alarm()->rank) std::this_thread::sleep_for(20ms);
  account.tell("verdict at rank 0");
  const std::string who = zero.named();
  account.tell("roll call");
  int agree = 0;
  StoreLine line(zero.line.store(), "bench/");
  std::vector<int> others;
  for (int rank = 1; rank < last_host; ++rank) others.push_back(rank);
  line.absent("named", others, 60s, true);
  for (const auto& [rank, other] : line.came("named")) agree += other == who ? 1 : 0;
  account.tell("all others");
  std::printf("named: %s\nthe same words: %d of %zu other ranks; peak memory of rank 0: %.1f MiB\n",
              who.c_str(), agree, others.size(), static_cast<double>(resident_kib()) / 1024);
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
    const int ranks = number(1, 1024);
    if (ranks < 2 * kHost) throw std::runtime_error("at least 16 ranks");
    return run(ranks, std::chrono::seconds(number(2, 20)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_control_plane: %s\n", error.what());
    return 1;
  }
}
