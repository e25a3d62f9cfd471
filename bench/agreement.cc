// What agreement costs a training with several ranks, counted: see --help.
#include "holdfast/distributed/agreement.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/state/train_state.h"
#include "shared/median.h"
#include "shared/program.h"
#include "shared/temporary_folder.h"

namespace holdfast::bench { namespace {

using namespace std::chrono_literals;

constexpr char kHelp[] =
    R"(What the agreement on saves and stops costs a training with several ranks. Run it as

  holdfast launch --nproc 2 -- bench_agreement

`vote` is one vote: processor time of the whole process (all threads, user and system; the processor counts it,
so a busy machine lengthens nothing but waits) and segments that its TCP connections have sent, per rank,
compared with the same loop without votes. Steps last --vote-step, as those of a training do, so the vote of the
step before has arrived. `training` is a loop with a Checkpointer and steps of --step: processor time of one
after_step() that neither votes nor reads a result, votes a second, and the share of the training's time that all
after_step() and the votes' other threads take. Goals: 5 us, and 0.05 %.
)";

constexpr double kQuietGoal = 5;     // us
constexpr double kShareGoal = 0.05;  // percent

struct Given {
  int votes = 1000;
  int repetitions = 5;
  int vote_step = 2000;  // us
  int steps = 1500;
  int step = 10000;  // us
  std::string output;
};

struct Counted {
  double processor = 0;  // us of a vote
  double segments = 0;   // with data in them, sent in a vote
  double waited = 0;     // us of a vote in result()
};

constexpr int kEstablished = 1;  // of the kernel's states; its header of TCP does not name them

double processor_seconds(clockid_t whose = CLOCK_PROCESS_CPUTIME_ID) {
  timespec now{};
  clock_gettime(whose, &now);
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

Counted count(ProcessGroup& group, Agreement* agreement, const Given& given, std::int64_t& step) {
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
  for (int i = 0; i < given.votes; ++i, ++step) {
    std::this_thread::sleep_for(std::chrono::microseconds(given.vote_step));
    if (agreement == nullptr) continue;
    if (pending) read();
    agreement->post(ballot_of({.step = step}, group.rank(), group.world_size()));
    pending = true;
  }
  if (pending) read();
  counted.processor = 1e6 * (processor_seconds() - processor) / given.votes;
  counted.segments = (segments_sent() - segments) / given.votes;
  counted.waited = std::chrono::duration<double, std::micro>(waited).count() / given.votes;
  return counted;
}

// Tells which steps have used the channel.
class CountingChannel final : public RankChannel {
 public:
  explicit CountingChannel(RankChannel& channel) : channel_(channel) {}
  int rank() const noexcept override { return channel_.rank(); }
  int world_size() const noexcept override { return channel_.world_size(); }
  Duration timeout() const noexcept override { return channel_.timeout(); }
  void post(const Ballot& mine) override {
    ++votes;
    channel_.post(mine);
  }
  std::optional<Ballot> result(Duration limit) override {
    ++results;
    return channel_.result(limit);
  }
  [[noreturn]] void give_up(const std::string& what, Duration waited) override {
    channel_.give_up(what, waited);
    std::abort();  // never reached: it says so to compilers that do not believe a virtual function
  }
  void tell(const std::string& name, std::string_view text) override { channel_.tell(name, text); }
  std::string hear(int rank, const std::string& name, Duration limit) override {
    return channel_.hear(rank, name, limit);
  }
  void forget(const std::string& name) override { channel_.forget(name); }
  void call(bool so) noexcept override { channel_.call(so); }
  bool called() const noexcept override { return channel_.called(); }
  void broadcast(std::span<std::byte> bytes) override { channel_.broadcast(bytes); }

  int votes = 0;
  int results = 0;

 private:
  RankChannel& channel_;
};

struct Training {
  double quiet = 0;             // us of one after_step() without a vote
  double used = 0;              // s of the training thread in all after_step()
  double lasted = 0;            // s
  double votes_per_second = 0;  // after the first second
};

// Something to train.
struct Position {
  void save(StateWriter& out) const { out.put("position", position); }
  void load(const StateReader& in) { position = in.get_int("position"); }
  std::int64_t position = 0;
};

Training train(ProcessGroup& group, Agreement& agreement, const Given& given) {
  std::optional<TemporaryFolder> folder;
  if (group.rank() == 0) folder.emplace();
  const std::string directory = group.exchange("a bench", folder ? folder->path().string() : "").front();
  Position position;
  TrainState state;
  state.add("position", position);
  CountingChannel channel(agreement);
  Checkpointer checkpointer(state, {.directory = directory + "/run",
                                    .every = {},
                                    .notices = {.hear_signals = false, .cloud = false},
                                    .ranks = {.channel = &channel}});
  checkpointer.resume();
  Training training;
  int quiet = 0;
  int controls = 0;
  double reading = 0;
  const auto used = [] { return processor_seconds(CLOCK_THREAD_CPUTIME_ID); };
  std::minstd_rand coin(1);
  const SteadyTime began = Clock::real().now();
  std::optional<SteadyTime> grown;
  int votes_then = 0;
  for (int i = 0; i < given.steps; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(given.step));
    // To read this clock is a system call, and dear after a sleep. So some steps, drawn by lot, measure
    // nothing but that; the others stand for them.
    if (coin() % 4 == 0) {
      const double at = used();
      reading += used() - at;
      ++controls;
      checkpointer.after_step({});
    } else {
      const int before = channel.votes + channel.results;
      const double at = used();
      checkpointer.after_step({});
      const double took = used() - at;
      training.used += took;
      if (channel.votes + channel.results == before) {
        training.quiet += took;
        ++quiet;
      }
    }
    if (!grown && channel.votes > 8) {
      grown = Clock::real().now();
      votes_then = channel.votes;
    }
  }
  const SteadyTime ended = Clock::real().now();
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  training.lasted = seconds(ended - began);
  const double of_reading = reading / std::max(controls, 1);
  training.quiet = 1e6 * (training.quiet / std::max(quiet, 1) - of_reading);
  const int measured = std::max(given.steps - controls, 1);
  training.used = (training.used / measured - of_reading) * given.steps;
  if (grown) training.votes_per_second = (channel.votes - votes_then) / seconds(ended - *grown);
  checkpointer.finish();
  return training;
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
  std::int64_t step = 0;
  std::vector<double> added;
  std::vector<double> segments;
  std::vector<double> waited;
  for (int i = 0; i < given.repetitions; ++i) {
    const Counted without = count(group, nullptr, given, step);
    const Counted with = count(group, &agreement, given, step);
    added.push_back(with.processor - without.processor);
    segments.push_back(with.segments - without.segments);
    waited.push_back(with.waited);
  }
  const double vote = worst_of(group, median(added));
  const double sent = worst_of(group, median(segments));
  const double wait = worst_of(group, median(waited));
  const Training training = train(group, agreement, given);
  const double quiet = worst_of(group, training.quiet);
  const double votes = worst_of(group, training.votes_per_second);
  // Of a vote the training thread's part counts twice.
  const double share =
      worst_of(group, 100 * (training.used / training.lasted + 1e-6 * vote * training.votes_per_second));
  const bool good = quiet <= kQuietGoal && share <= kShareGoal;
  if (group.rank() == 0) {
    std::printf("vote      %6.1f us of processor time a rank, %.2f segments sent, %.1f us waited\n", vote,
                sent, wait);
    std::printf(
        "training  %6.2f us of processor time a step without a vote (goal 5), %.2f votes a second,\n"
        "          %.4f %% of steps of %.1f ms in all (goal 0.05): %s\n",
        quiet, votes, share, 1e-3 * given.step, good ? "met" : "MISSED");
  }
  if (group.rank() == 0 && !given.output.empty()) {
    write_figures(given.output,
                  nlohmann::ordered_json{
                      {"ranks", group.world_size()},
                      {"votes", given.votes},
                      {"repetitions", given.repetitions},
                      {"ballot_bytes", sizeof(Ballot)},
                      {"vote", {{"processor_us", vote}, {"segments_sent", sent}, {"waited_us", wait}}},
                      {"training",
                       {{"steps", given.steps},
                        {"step_us", given.step},
                        {"quiet_processor_us", quiet},
                        {"votes_per_second", votes},
                        {"share_percent", share}}},
                      {"goal_quiet_us", kQuietGoal},
                      {"goal_share_percent", kShareGoal},
                      {"met", good}});
  }
  std::fflush(stdout);
  group.leave();
  return good || group.rank() != 0 ? 0 : 1;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  using holdfast::bench::kHelp;
  holdfast::bench::Given given;
  CLI::App app(kHelp);
  const auto number = [&](const char* name, int& value, int least, const char* what) {
    app.add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, 1000000));
  };
  number("--votes", given.votes, 10, "of each loop of votes");
  number("--repetitions", given.repetitions, 1, "medians of so many");
  number("--vote-step", given.vote_step, 1, "microseconds from one vote to the next");
  number("--steps", given.steps, 10, "of the training");
  number("--step", given.step, 1, "microseconds that a step of it lasts");
  app.add_option("--output", given.output, "rank 0 writes all figures there, as JSON");
  CLI11_PARSE(app, argc, argv);
  return holdfast::bench::ended_by("bench_agreement", [&] { return holdfast::bench::measure(given); });
}
