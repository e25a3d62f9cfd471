// The processes of one training on this host: started together, watched one by one.
//
// Each has its own process group, so that a Ctrl-C at the terminal reaches only the launcher, which forwards
// it once. They print through RankOutput. If the launcher dies, they get SIGTERM, and later SIGKILL
// (rank_guardian.h).
//
// Errors: IoError if a process or a pipe cannot be made; running ranks are then killed. A command that cannot
// be executed is an ending (126 or 127) with a reason. Threads: the one that made the inbox.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/cli/child/started_process.h"
#include "holdfast/cli/launch/launch_verdict.h"
#include "holdfast/cli/launch/rank_guardian.h"
#include "holdfast/cli/launch/rank_output.h"

namespace holdfast { inline namespace v0_2 {

struct RankSetting {
  int rank = 0;
  std::map<std::string, std::string> environment = {};  // added to ours
  std::vector<std::string> without = {};                // removed from ours
  int inherited = -1;                                   // a descriptor that it inherits; -1: none
};

class LaunchedRanks {
 public:
  LaunchedRanks(const std::vector<std::string>& command, const std::vector<RankSetting>& settings,
                const SignalInbox& inbox);
  ~LaunchedRanks();  // kills the ranks that still run
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;

  // The ranks that have ended since the last call.
  std::vector<RankEnding> reap();
  bool ended() const { return endings_.size() == processes_.size(); }
  // In the order in which they ended.
  const std::vector<RankEnding>& endings() const { return endings_; }
  std::string living() const;  // "rank 2", "ranks 2, 3"
  std::vector<pid_t> living_processes() const;

  // To the command of every running rank; SIGKILL to its whole group.
  void send(int signal) const;
  // Sends it because another rank failed; later exits count as no failure.
  void tell(int signal);
  // Ends processes that the ranks left behind in their groups: SIGTERM, and SIGKILL after 5 s or at the time
  // that `wait` names. Prints their last lines. `wait`: called again and again, takes some milliseconds.
  void clear(const std::function<std::optional<SteadyTime>()>& wait);

 private:
  struct Process {
    int rank = 0;
    pid_t id = -1;
    StartedProcess started = {};
    bool ended = false;
    bool group_gone = false;
  };

  pid_t reap_one(int& status);  // as waitpid(), which it calls
  bool groups_gone();
  void signal_groups(int signal) const;

  std::vector<Process> processes_;
  std::vector<RankEnding> endings_;
  bool told_ = false;
  RankGuardian guardian_;
  RankOutput output_;
};

}}  // namespace holdfast::v0_2
