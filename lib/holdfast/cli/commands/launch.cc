#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/launch/launched_ranks.h"
#include "holdfast/cli/launch/listening_socket.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/stall_evidence.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Between two lines that say who is waited for.
constexpr Duration kBetweenWords = 30s;
constexpr Duration kBetweenKills = 5s;
// Ranks that stop together end a moment after one another: only who stays has not heard of it.
constexpr Duration kTogether = 3s;
// Only limits are looked at so rarely: the end of a rank ends the wait at once, by SIGCHLD.
constexpr Duration kBetweenLooks = 1s;
// The end of a process that a rank left behind may come without SIGCHLD.
constexpr Duration kBetweenLooksAtGroups = 5ms;
constexpr Duration kBetweenLooksForEvidence = 20ms;
// As a trainer counts them (signal_latch.cc): sent to a whole service, one SIGINT comes by its supervisor,
// too.
constexpr Duration kPassedOn = 200ms;
constexpr Duration kSecondCtrlC = 10s;

struct LaunchRequest {
  std::vector<std::string> command;
  int processes = 0;
  int hosts = 0;  // 0: as the launcher around this one says
  int host = 0;
  std::string master;
  Duration leave_timeout = 10min;
  std::filesystem::path unless_complete;
};

// Which of how many hosts this is, and where all meet.
struct Place {
  int hosts = 1;
  int host = 0;
  std::string address;
  std::uint16_t port = 0;  // 0: here, wherever the kernel has a free one
  std::string job;
};

Place place_by_options(const LaunchRequest& options) {
  if (options.host >= options.hosts) {
    throw UsageError("--node-rank " + std::to_string(options.host) + " of --nnodes " +
                     std::to_string(options.hosts) + ": hosts are counted from 0");
  }
  if (options.master.empty() && options.hosts > 1) {
    throw UsageError("--nnodes " + std::to_string(options.hosts) +
                     " needs --master HOST:PORT: a free port of host 0, the same on all hosts");
  }
  return {.hosts = options.hosts, .host = options.host, .address = "127.0.0.1", .port = 0, .job = {}};
}

// srun --ntasks-per-node=1 or a pod each start one of these on every host.
Place place_by_launcher() {
  const LaunchEnvironment around = launch_environment();
  if (!around.remark.empty()) log_warning(around.remark);
  if (around.world_size == 1) return {.address = "127.0.0.1", .job = {}};
  if (around.local_world_size.value_or(1) != 1) {
    throw UsageError(std::string(name_of(around.launcher)) + " has started " +
                     std::to_string(*around.local_world_size) +
                     " of these on this host: let it start one a host, or the trainer itself");
  }
  return {.hosts = around.world_size,
          .host = around.rank,
          .address = around.master_address,
          .port = around.master_port,
          .job = around.job};
}

void meet_at(const std::string& master, Place& place) {
  // The last colon, because an IPv6 address has colons itself.
  const auto colon = master.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : parse_int(master.substr(colon + 1));
  if (!port || *port < 1 || *port > 65'535 || colon == 0) {
    throw UsageError("--master '" + printable(master) + "': expected HOST:PORT, such as gpu1:29500");
  }
  place.address = master.substr(0, colon);
  place.port = static_cast<std::uint16_t>(*port);
}

Place place_of(const LaunchRequest& options) {
  Place place = options.hosts > 0 ? place_by_options(options) : place_by_launcher();
  if (!options.master.empty()) meet_at(options.master, place);
  return place;
}

class Launch {
 public:
  explicit Launch(const LaunchRequest& options) : options_(options), place_(place_of(options)) {
    if (place_.port == 0) {
      socket_ = std::make_unique<ListeningSocket>();
      place_.port = socket_->port();
    }
    // A name that no other launch has: two jobs at one port notice each other by it.
    if (place_.hosts == 1) place_.job = in_hex(random_bytes(8));
  }

  int run() {
    ranks_ = std::make_unique<LaunchedRanks>(options_.command, settings(), inbox_);
    socket_.reset();  // rank 0 has inherited it
    log_info("{} processes, ranks {} to {} of {}, meet at {}:{}", options_.processes, first_rank(),
             first_rank() + options_.processes - 1, world_size(), place_.address, place_.port);
    while (!ranks_->ended()) {
      pass_on(inbox_.wait(kBetweenLooks));
      for (const RankEnding& ending : ranks_->reap()) judge(ending);
      if (ask_at_ && Clock::real().now() >= *ask_at_) {
        ask_at_.reset();
        if (!ranks_->ended() && !asked_to_stop_) {
          log_info("SIGTERM to {}, still there", ranks_->living());
          ranks_->send(SIGTERM);
        }
      }
      if (end_at_ && Clock::real().now() >= *end_at_) end_those_who_stay();
      say_who_stays();
      if (kill_at_ && Clock::real().now() >= *kill_at_) {
        keep_evidence("it has not left within its grace period");
        log_warning("{} did not end: killed", ranks_->living());
        ranks_->send(SIGKILL);
        kill_at_ = Clock::real().now() + kBetweenKills;
      }
    }
    ranks_->clear([this] {
      pass_on(inbox_.wait(kBetweenLooksAtGroups));
      // After a stop a shell may have ended before its trainer, which commits and needs the grace.
      return asked_to_stop_ ? kill_at_ : std::nullopt;
    });
    const LaunchVerdict verdict = verdict_of(ranks_->endings());
    if (verdict.code == 0) {
      log_info(verdict.text);
    } else {
      log_warning("{}; exit {}", verdict.text, verdict.code);
    }
    return verdict.code;
  }

 private:
  int first_rank() const { return place_.host * options_.processes; }
  int world_size() const { return place_.hosts * options_.processes; }

  std::vector<RankSetting> settings() const {
    // hardware_concurrency() is 0 if it is not known.
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    // The cores are divided: ranks with as many threads as cores would slow each other.
    const unsigned threads = std::max(1U, cores / static_cast<unsigned>(options_.processes));
    std::vector<RankSetting> all;
    for (int i = 0; i < options_.processes; ++i) {
      RankSetting& one = all.emplace_back();
      one.rank = first_rank() + i;
      one.environment = {{kEnvRank.name, std::to_string(one.rank)},
                         {kEnvLocalRank.name, std::to_string(i)},
                         {kEnvWorldSize.name, std::to_string(world_size())},
                         {kEnvLocalWorldSize.name, std::to_string(options_.processes)},
                         {kEnvMasterAddress.name, place_.address},
                         {kEnvMasterPort.name, std::to_string(place_.port)}};
      if (!place_.job.empty()) one.environment[kEnvLaunchJob.name] = place_.job;
      if (!env_text(kEnvOmpThreads)) one.environment[kEnvOmpThreads.name] = std::to_string(threads);
      if (socket_ && one.rank == 0) {
        one.inherited = socket_->descriptor();
        one.environment[kEnvLaunchSocket.name] = std::to_string(one.inherited);
      }
      // Removes the variables that an outer launch has set for its own ranks.
      for (const EnvVariable& variable :
           {kEnvLaunchJob, kEnvLaunchSocket, kEnvElasticRun, kEnvElasticStore}) {
        if (!one.environment.contains(variable.name)) one.without.emplace_back(variable.name);
      }
    }
    return all;
  }

  void pass_on(const std::optional<int>& signal) {
    if (!signal) return;
    if (*signal == SIGINT) {
      // The ranks have no terminal, so they cannot detect the second Ctrl-C of an impatient person.
      const SteadyTime now = Clock::real().now();
      if (interrupted_ && now - *interrupted_ >= kPassedOn && now - *interrupted_ <= kSecondCtrlC) {
        kill_at_ = now;
      }
      interrupted_ = now;
    }
    ranks_->send(*signal);
    if (*signal != SIGTERM && *signal != SIGINT) return;
    if (!asked_to_stop_) {
      asked_to_stop_ = true;
      kill_no_later_than(longest_time_to_leave());
      word_at_ = Clock::real().now() + kBetweenWords;
    }
  }

  void kill_no_later_than(Duration grace) {
    const SteadyTime then = Clock::real().now() + grace;
    kill_at_ = kill_at_ ? std::min(*kill_at_, then) : then;
  }

  // Other ranks were complete long ago, so the remaining ones hang.
  void end_those_who_stay() {
    end_at_.reset();
    if (ranks_->ended() || kill_at_) return;
    keep_evidence("the first rank has ended, and " + ranks_->living() + " has not");
    const Duration grace = time_to_leave();
    log_warning(
        "{} did not end within {} of the first rank's end (--leave-timeout): SIGTERM, and SIGKILL in {}",
        ranks_->living(), format_duration(options_.leave_timeout), format_duration(grace));
    ranks_->send(SIGTERM);
    kill_no_later_than(grace);
  }

  // Once, for whatever comes first. Whoever has asked for a stop knows why the ranks end, and is in a hurry.
  void keep_evidence(const std::string& why) {
    if (asked_to_stop_ || std::exchange(evidence_kept_, true)) return;
    Stall stall{
        .by = "holdfast launch", .why = why, .processes = with_descendants(ranks_->living_processes())};
    find_run(stall);
    keep_stall_evidence(stall, [this] { pass_on(inbox_.wait(kBetweenLooksForEvidence)); });
  }

  void say_who_stays() {
    const SteadyTime now = Clock::real().now();
    if (!word_at_ || now < *word_at_ || ranks_->ended()) return;
    word_at_ = now + kBetweenWords;
    const auto& next = kill_at_ ? kill_at_ : end_at_;
    log_info("waiting for {} to end{}", ranks_->living(),
             next ? std::string(kill_at_ ? "; SIGKILL in " : "; SIGTERM in ") +
                        format_duration(std::max<Duration>(*next - now, 0s))
                  : "");
  }

  void judge(const RankEnding& ending) {
    // A rank that was told to end says nothing new, and after the last one nobody is left to act on.
    if (ending.told || ranks_->ended()) return;
    if (!word_at_) word_at_ = Clock::real().now() + kBetweenWords;
    if (!end_at_ && !is_failure(ending.ending) && options_.leave_timeout > Duration::zero()) {
      end_at_ = Clock::real().now() + options_.leave_timeout;
    }
    if (is_failure(ending.ending) && !failed_) {
      failed_ = true;
      // The other ranks may have a save in flight, so they get time to finish it.
      const Duration grace = time_to_leave();
      log_error("rank {} failed ({}); the others get SIGTERM, and {} to leave", ending.rank,
                to_text(ending.ending), format_duration(grace));
      // Told, so that their endings count as no failure of their own.
      ranks_->tell(SIGTERM);
      kill_no_later_than(grace);
    } else if (!failed_ && ending.ending.code() == static_cast<int>(ExitCode::interrupted) && !one_left_) {
      one_left_ = true;
      const Duration grace = time_to_leave();
      log_info("rank {} was interrupted; the others have {} to commit and leave", ending.rank,
               format_duration(grace));
      if (!asked_to_stop_) ask_at_ = Clock::real().now() + kTogether;
      kill_no_later_than(grace);
    }
  }

  const LaunchRequest& options_;
  SignalInbox inbox_;
  Place place_;
  std::unique_ptr<ListeningSocket> socket_;
  std::unique_ptr<LaunchedRanks> ranks_;
  bool asked_to_stop_ = false;
  std::optional<SteadyTime> interrupted_;  // the last SIGINT
  bool failed_ = false;
  bool one_left_ = false;  // interrupted
  bool evidence_kept_ = false;
  std::optional<SteadyTime> ask_at_;
  std::optional<SteadyTime> end_at_;   // SIGTERM for ranks that remain after complete ones
  std::optional<SteadyTime> word_at_;  // next log line about ranks that remain
  std::optional<SteadyTime> kill_at_;
};

// The other hosts' processes may have left when the run became complete: this host would wait for them.
bool is_complete(const std::filesystem::path& directory) {
  if (directory.empty()) return false;
  const auto run = FileSystem::real().open_directory(directory, false);
  const auto state = run ? read_run_state(*run) : std::nullopt;
  if (!state || state->phase != RunPhase::complete) return false;
  log_info("the run in {} is complete: nothing is started (leave out --unless-complete to train it further)",
           directory);
  return true;
}

int run_launch(const LaunchRequest& options) {
  if (options.command.empty()) {
    throw UsageError(
        "no command given: put it last, after two dashes: holdfast launch --nproc 2 -- ./train --lr 0.1");
  }
  if (is_complete(options.unless_complete)) return 0;
  return Launch(options).run();
}

constexpr char kLaunchFooter[] =
    R"(COMMAND gets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and
OMP_NUM_THREADS = cores / N unless it is set. Each line of its output begins with the rank, as in [3].

Launch passes on SIGTERM, SIGINT and SIGUSR1 to every process, each once, and SIGHUP, SIGUSR2 and SIGXCPU
(HOLDFAST_STOP_SIGNALS) as SIGTERM. A second SIGINT within 10 s kills them. Processes that have not ended after the
grace period (HOLDFAST_TERM_GRACE and 5 s; 2 min if it is not set) get SIGKILL.

If a process fails, or if launch itself is killed, the others get SIGTERM, and SIGKILL after the grace period (30 s
if HOLDFAST_TERM_GRACE is not set). If a process leaves interrupted (75), those that still run 3 s later get SIGTERM.

Before launch ends a process that hangs, it writes what its threads do into attempts/<n>.stall.txt of the run directory,
or into TMPDIR where it cannot tell the run directory. That takes 5 s at most, and is left out after a stop signal.

Programs that do not use Holdfast need --master, because they do not take over rank 0's socket.

Exit code: 0 if all processes exit with 0, 75 if all exit with 75, and 70 if some exit with 0 and some with 75.
Otherwise that of the process that failed first (128 + N if signal N ended it). So
`holdfast supervise -- holdfast launch …` restarts an interrupted run.

Example:
  holdfast launch --nproc 8 -- ./train --checkpoint-dir /mnt/ckpt/run1)";

}  // namespace

void add_launch(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto options = std::make_shared<LaunchRequest>();
  // CLI11 never saw these words: it would split an argument such as [1,2].
  options->command = wrapped;
  CLI::App* const command = app.add_subcommand(
      "launch",
      "Start the processes of one training run, one for each GPU: launch --nproc N [OPTIONS] -- COMMAND...");
  command->add_option("--nproc", options->processes, "processes on this host, usually one for each GPU")
      ->check(CLI::Range(1, 4096))
      ->required()
      ->type_name("N");
  CLI::Option* const hosts =
      command->add_option("--nnodes", options->hosts,
                          "number of hosts; each runs holdfast launch with the same --nproc (default: as "
                          "srun --ntasks-per-node=1 or the pod's RANK and WORLD_SIZE say; otherwise 1)");
  hosts->check(CLI::Range(1, 100'000))->type_name("N");
  command->add_option("--node-rank", options->host, "number of this host, counted from 0; needs --nnodes")
      ->needs(hosts)
      ->check(CLI::Range(0, 99'999))
      ->type_name("N");
  command
      ->add_option("--master", options->master,
                   "address where all processes meet: a free port of host 0 (default with one host: a port "
                   "that the kernel chooses, and that no other process can take)")
      ->type_name("HOST:PORT");
  const auto leave = std::make_shared<std::string>("10min");
  add_time(*command, "--leave-timeout", *leave,
           "time from the first process that exits with 0 until the others get SIGTERM; 0: never");
  command
      ->add_option("--unless-complete", options->unless_complete,
                   "end with 0 at once if the run in DIR is complete: for a host that is replaced after the "
                   "processes of others have left")
      ->type_name("DIR");
  command->footer(kLaunchFooter);
  command->callback([options, leave, &chosen] {
    options->leave_timeout = duration_of("--leave-timeout", *leave);
    chosen = [options] { return run_launch(*options); };
  });
}

}}  // namespace holdfast::v0_2
