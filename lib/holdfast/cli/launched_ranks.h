// The processes of one training on this host: started together, watched one by one.
//
// Each has a process group of its own, so that a Ctrl-C at the terminal reaches the launcher alone, which
// passes it on once. They print through RankOutput. When the launcher dies, however it dies, they get
// SIGTERM.
//
// Errors: IoError when a process or a pipe cannot be made (those that run are killed). A command that cannot
// be executed is an ending (126 or 127) with its reason. Threads: the one that made the inbox.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "holdfast/cli/launch_verdict.h"
#include "holdfast/cli/rank_output.h"

namespace holdfast::inline v1 {

struct RankSetting {
  int rank = 0;
  std::map<std::string, std::string> environment = {};  // added to our own
  std::vector<std::string> without = {};                // taken from our own
  int inherited = -1;                                   // a descriptor that it gets; -1: none
};

class LaunchedRanks {
 public:
  LaunchedRanks(const std::vector<std::string>& command, const std::vector<RankSetting>& settings,
                const SignalInbox& inbox);
  ~LaunchedRanks();  // kills what still runs
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;

  // Those that have ended since the last call.
  std::vector<RankEnding> reap();
  bool ended() const { return endings_.size() == processes_.size(); }
  // In the order in which they ended.
  const std::vector<RankEnding>& endings() const { return endings_; }
  std::string living() const;  // "rank 2", "ranks 2, 3"

  // To the command of every rank that runs; SIGKILL to all of its group.
  void send(int signal) const;
  // The same, because another has failed: how they end says nothing from now on.
  void tell(int signal);
  // Ends what the ranks have left behind in their groups (SIGTERM, SIGKILL 5 s later), and takes their last
  // lines.
  void clear();

 private:
  struct Process {
    int rank = 0;
    pid_t id = -1;
    std::string not_started;
    bool ended = false;
    bool group_gone = false;
  };

  bool groups_gone();
  void signal_groups(int signal) const;

  std::vector<Process> processes_;
  std::vector<RankEnding> endings_;
  bool told_ = false;
  RankOutput output_;
};

}  // namespace holdfast::inline v1
