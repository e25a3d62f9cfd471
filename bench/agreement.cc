// What agreement adds to a step of a training with several ranks, counted: see --help.
#include "holdfast/distributed/agreement.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/rank_channel.h"
#include "shared/median.h"
#include "shared/program.h"

namespace holdfast::bench { namespace {

using namespace std::chrono_literals;

constexpr char kHelp[] =
    R"(What the agreement on saves and stops adds to a step of a training with several ranks: processor time of the
whole process (all threads, user and system; the processor counts it, so a busy machine lengthens nothing but
waits), segments that its TCP connections have sent and bytes of its ballots, per rank and step. Run it as

  holdfast launch --nproc 2 -- bench_agreement

`paced` steps last --step each, as those of a training do, and find the ballot of the step before arrived; `empty`
steps do nothing else, so that each waits for the network. Both are compared with the same loop without an
agreement. Goal: 50 us a rank and step, and no blocking collective: paced steps wait for nothing.
)";

constexpr double kGoalMicroseconds = 50;

struct Given {
  int steps = 2000;
  int repetitions = 5;
  int microseconds = 2000;
  std::string output;
};

struct Counted {
  double processor = 0;  // us of a step
  double segments = 0;   // with data in them, sent in a step
  double waited = 0;     // us of a step in result()
};

constexpr int kEstablished = 1;  // of the kernel's states; its header of TCP does not name them

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double segments_sent() {
  double sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int socket = std::atoi(entry.path().filename().c_str());
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == kEstablished) {
      sum += info.tcpi_data_segs_out;
    }
  }
  return sum;
}

Counted count(ProcessGroup& group, Agreement* agreement, const Given& given, bool paced, std::int64_t& step) {
  Counted counted;
  group.exchange("a bench", "");
  const double segments = segments_sent();
  const double processor = processor_seconds();
  Duration waited{};
  bool pending = false;
  const auto read = [&] {
    const SteadyTime began = Clock::real().now();
    while (!agreement->result(50ms)) {
    }
    waited += Clock::real().now() - began;
  };
  for (int i = 0; i < given.steps; ++i, ++step) {
    if (paced) std::this_thread::sleep_for(std::chrono::microseconds(given.microseconds));
    if (agreement == nullptr) continue;
    if (pending) read();
    agreement->post(ballot_of({.step = step}, group.rank(), group.world_size()));
    pending = true;
  }
  if (pending) read();
  counted.processor = 1e6 * (processor_seconds() - processor) / given.steps;
  counted.segments = (segments_sent() - segments) / given.steps;
  counted.waited = std::chrono::duration<double, std::micro>(waited).count() / given.steps;
  return counted;
}

// The worst rank's.
double worst_of(ProcessGroup& group, double mine) {
  double worst = 0;
  for (const std::string& text : group.exchange("a bench", std::to_string(mine))) {
    worst = std::max(worst, std::stod(text));
  }
  return worst;
}

int measure(const Given& given) {
  ProcessGroup group;
  if (group.world_size() == 1) {
    throw UsageError(
        "bench_agreement has one rank only: start it by holdfast launch --nproc 2 -- bench_agreement");
  }
  Agreement agreement(group);
  nlohmann::ordered_json all = {{"ranks", group.world_size()},
                                {"steps", given.steps},
                                {"repetitions", given.repetitions},
                                {"ballot_bytes", sizeof(Ballot)}};
  std::int64_t step = 0;
  bool good = true;
  for (const bool paced : {true, false}) {
    std::vector<double> added;
    std::vector<double> segments;
    std::vector<double> waited;
    for (int i = 0; i < given.repetitions; ++i) {
      const Counted without = count(group, nullptr, given, paced, step);
      const Counted with = count(group, &agreement, given, paced, step);
      added.push_back(with.processor - without.processor);
      segments.push_back(with.segments - without.segments);
      waited.push_back(with.waited);
    }
    const double processor = worst_of(group, median(added));
    const double sent = worst_of(group, median(segments));
    const double wait = worst_of(group, median(waited));
    if (paced) good = processor <= kGoalMicroseconds;
    all[paced ? "paced" : "empty"] = {
        {"processor_us", processor}, {"segments_sent", sent}, {"waited_us", wait}};
    if (group.rank() != 0) continue;
    std::printf("%s  %5.1f us of processor time a rank and step, %.2f segments sent, %.1f us waited%s\n",
                paced ? "paced" : "empty", processor, sent, wait,
                !paced ? "" : (good ? "  (goal 50 us: met)" : "  (goal 50 us: MISSED)"));
  }
  all["goal_us"] = kGoalMicroseconds;
  all["met"] = good;
  if (group.rank() == 0 && !given.output.empty()) write_figures(given.output, all);
  group.leave();
  return good ? 0 : 1;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  using holdfast::bench::kHelp;
  holdfast::bench::Given given;
  CLI::App app(kHelp);
  app.add_option("--steps", given.steps, "of each loop")
      ->capture_default_str()
      ->check(CLI::Range(10, 1000000));
  app.add_option("--repetitions", given.repetitions, "medians of so many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--step", given.microseconds, "microseconds that a paced step lasts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--output", given.output, "rank 0 writes all figures there, as JSON");
  CLI11_PARSE(app, argc, argv);
  return holdfast::bench::ended_by("bench_agreement", [&] { return holdfast::bench::measure(given); });
}
