// One training from one seed: the product from Checkpointer down, as its users link it, with its threads as
// fibers; simulated are the disk, the other ranks' channel, machines that end, and the program. Attempts
// follow until the run is complete.
//
//   ShellRun run(seed, shell_faults_of(seed));
//   if (const std::string broken = run.run(); !broken.empty()) …   // seed and faults repeat it exactly
//
// Call it in a child process (shell_seeds.h): killed processes leave memory behind. Errors: none. Threads:
// one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fibers.h"
#include "shell_process.h"
#include "weather.h"

namespace holdfast::simulation {

struct ShellCounts {
  std::array<std::uint64_t, kShellPromises> promises{};
  std::uint64_t attempts = 0, durable = 0, steps = 0, points = 0, seconds = 0, hash = 0;
  std::array<std::uint64_t, 256> codes{};
};

// One life of the run, of one or several processes.
struct ShellAttempt {
  struct Choice {
    Duration step_time{};
    Duration evaluation{};
    std::int64_t evaluate_at = 0, save_at = 0;
    SaveTriggers every;
    std::optional<std::int64_t> every_steps;
    Retention keep;
    OnNotice policy = OnNotice::train_on;
    double write_limit = 0;
  };
  explicit ShellAttempt(std::uint64_t the_seed) : seed(the_seed), weather(the_seed) {}
  bool sees(int rank) const { return rank <= 0 || rank < seers; }
  // Within which a healthy disk answers.
  Duration patience() const { return std::chrono::minutes(3); }

  std::uint64_t seed;
  int number = 0;
  bool disturbed = false;
  Weather weather;
  Choice choice;
  int seers = 1;
  std::shared_ptr<test::MemoryFileSystem> disk;
  std::unique_ptr<test::MemoryWorld> world;  // null: alone
  std::vector<std::unique_ptr<ShellProcess>> processes;
  SteadyTime began{}, killed_at = Fibers::kNever;
  bool told = false;     // a stop, or an end, was told to one of its ranks
  bool notices = false;  // so that not every save is made
  bool rank_lost = false, over = false;
  bool rivalled = false;              // another attempt ran beside it
  std::optional<std::int64_t> newer;  // a newer attempt resumed at this step
  SteadyTime longest{};               // until then waiting is no fault
  std::int64_t began_with = 0;        // step
};

class ShellRun {
 public:
  ShellRun(std::uint64_t seed, ShellFaults faults, bool trace = false);
  // Empty: the run was completed, and all promises held.
  std::string run();
  const ShellCounts& counts() const { return counts_; }

  bool has(ShellFault fault) const { return (faults_ & bit(fault)) != 0; }
  bool calm() const { return is_calm(faults_); }
  std::int64_t goal() const { return goal_; }

  // For processes.
  void check(ShellPromise promise, bool held, const std::string& why);
  void resumed(ShellProcess& process);
  void trained(ShellProcess& process);
  void acknowledged(ShellProcess& process, std::int64_t step);
  void failed(ShellProcess& process, std::int64_t step, const std::string& error);
  void ended(ShellProcess& process);
  void say(const ShellProcess& process, const std::string& text) const;

 private:
  void live();
  ShellAttempt& begin(bool disturbed);
  void choose(ShellAttempt& attempt);
  void disturb(ShellAttempt& attempt);
  void announce(ShellAttempt& attempt, ShellProcess& process, SteadyTime at, Chance& chance);
  void look_at_stop(ShellAttempt& attempt, ShellProcess& process);
  void request(ShellAttempt& attempt, ShellProcess& process);
  static Chance chance_of(const ShellAttempt& attempt, ShellFault fault);
  void at(ShellProcess& process, SteadyTime time, std::function<void()> work);
  void look_at_end(ShellAttempt& attempt);
  void kill(ShellAttempt& attempt);
  void conclude(ShellAttempt& attempt);
  void judge(const ShellAttempt& attempt, const ShellProcess& process);
  void judge_state(const ShellAttempt& attempt, const ShellProcess& leader);
  test::MemoryFileSystem after_power_cut(const test::MemoryFileSystem& disk);

  const std::uint64_t seed_;
  const ShellFaults faults_;
  const bool trace_;
  Chance chance_;
  std::int64_t goal_ = 0;
  int disturbed_attempts_ = 0;
  ShellCounts counts_;
  std::optional<Fibers> fibers_;
  std::shared_ptr<test::MemoryFileSystem> disk_;
  std::vector<std::unique_ptr<ShellAttempt>> attempts_;
  std::vector<ShellAttempt*> live_;
  std::int64_t acknowledged_ = -1;
  std::map<AttemptNumber, std::int64_t> acknowledged_by_;  // the newest of each attempt
  bool complete_ = false;
  Fibers::Group groups_ = 0;
};

}  // namespace holdfast::simulation
