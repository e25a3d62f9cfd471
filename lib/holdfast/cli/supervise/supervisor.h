// `holdfast supervise`: runs a command, and starts it again after an interruption. restart_policy.h decides
// when; run_account.h adds what the run directory says.
//
// Errors: UsageError for malformed options. Threads: the one that makes it. Run directories are read on other
// threads (lookup.h), and not at all while none can be made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/thread/lookup.h"
#include "holdfast/cli/run/ledger_tail.h"
#include "holdfast/cli/supervise/end_hook.h"
#include "holdfast/cli/supervise/restart_policy.h"
#include "holdfast/cli/supervise/run_account.h"
#include "holdfast/cli/supervise/slurm_job.h"
#include "holdfast/cli/supervise/stall_watch.h"
#include "holdfast/store/stall_evidence.h"

namespace holdfast { inline namespace v0_2 {

struct SuperviseRequest {
  std::vector<std::string> command;
  std::string on_complete;
  std::string on_give_up;
  std::filesystem::path directory;
  int max_restarts = 10;
  std::string first_delay = "1s";
  std::string after_deadline = "1min";
  std::string retry_volume = "1h";
  std::string hook_timeout = "30min";
  std::string stall_timeout;  // empty: derived from the run's steps
  std::string directory_timeout = "1min";
  bool requeue_slurm = false;
  std::string mirror;  // HOME; empty: none
  int home_keep = 3;
  std::filesystem::path home_mount;
  std::string home_wait = "10min";
  double mirror_limit = 0;  // MB/s
  bool standby = false;
  std::string takeover_after;  // empty: never by silence
};

class MirrorProcess;

inline constexpr Duration kNormalAnswer =
    std::chrono::seconds(1);  // a slower answer of a disk or mirror is logged

class Supervisor {
 public:
  // `mirror` outlives this object; nullptr: none.
  explicit Supervisor(const SuperviseRequest& options, MirrorProcess* mirror = nullptr);
  // Returns the exit code.
  int run();

 private:
  // How a life of the command ended, beside its exit code.
  struct Attended {
    bool all_ended = true;         // false: one of its processes cannot be ended
    std::string stood_still = {};  // why it was ended: "its step 7 stood still for 12m"
  };

  RunNews news();
  bool answered(const Lookup<RunNews>& looking);
  Judgement judge(const Ending& ending, const RunNews& after, SteadyTime began);
  std::optional<Duration> time_left(const RunNews& after);
  bool time_is_over(const RunNews& after) const;
  bool heard(const std::optional<int>& signal, const AttendedChild* child);

  Attended attend(AttendedChild& child);
  std::optional<Stall> look_for_stall();
  bool clear(AttendedChild& child);
  bool end_orphan(const ProcessIdentity& trainer, const std::string& attempt);
  void pause(AttendedChild& last, Duration delay, bool for_standby);

  std::optional<int> prepare();
  int bring_home();
  int put_back(int code);
  int end(int code, bool back_to_queue);
  int complete();
  int give_up(int code, const std::string& reason);
  int run_on_give_up(int code, const std::string& reason);
  HookContext context(const char* hook, int code, const std::string& reason) const;

  const SuperviseRequest& options_;
  MirrorProcess* const mirror_;
  SignalInbox inbox_;
  RestartPolicy policy_;
  const EndHookOptions hook_options_;
  const std::optional<SlurmJob> slurm_job_;
  const Duration directory_timeout_;
  const std::int64_t since_;  // for HOLDFAST_SUPERVISED_SINCE
  const std::string uptime_;  // for HOLDFAST_SUPERVISED_UPTIME
  bool asked_to_stop_ = false;
  int stops_ = 0;  // stop signals so far
  std::optional<SteadyTime> first_stop_;
  const int stop_signal_;                         // what tells the command to stop
  const std::optional<Duration> signalled_time_;  // from SIGUSR1 to the end of this process's time
  std::optional<SteadyTime> own_end_;             // after such a SIGUSR1
  SupervisedRun account_;
  bool stands_by_;                      // until the command has claimed the run
  std::optional<SteadyTime> deadline_;  // end of this machine
  std::optional<Lookup<RunNews>> looking_;

  // False without a directory, and with --stall-timeout 0.
  bool watches_steps_ = false;
  StallWatch stall_watch_;
  std::shared_ptr<LedgerTail> tail_;
  std::optional<Lookup<LedgerTail::News>> looking_at_ledger_;
  SteadyTime next_look_{};
};

}}  // namespace holdfast::v0_2
