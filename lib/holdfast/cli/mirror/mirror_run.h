// A mirror as `mirror`, `fetch` and `supervise --mirror` run it: with the format's verifier, in the idle I/O
// class, and ending on signals. Memory: at most 64 MB, whatever the size of a checkpoint.
//
// After the first SIGTERM or SIGINT it waits for the trainer's last save, and brings it home without a limit
// of speed, until the grace period ends (HOLDFAST_TERM_GRACE); after the second it stops at once. It pauses
// while the trainer writes, and lifts the limit while an end is announced (mirror/trainer_signs.h).
// Errors: UsageError; those of the module mirror. Threads: the one that made it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/cli/child/attended_child.h"
#include "holdfast/mirror/local_lock.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "holdfast/mirror/trainer_signs.h"
#include "holdfast/writing/file_verifier.h"

namespace CLI {
class App;
}

namespace holdfast { inline namespace v0_2 {

// Adds --home-keep.
void add_home_keep(CLI::App& command, int& home_keep);
// Adds --home-wait.
void add_home_wait(CLI::App& command, std::string& home_wait);

struct MirrorRequest {
  std::filesystem::path directory;
  std::string home;
  int home_keep = 3;
  std::filesystem::path home_mount = {};
  double limit = 0;  // MB/s; 0: none
  bool once = false;
  bool supervised = false;          // by `supervise`, which prepares every start itself
  bool standby = false;             // the first start is a standby's, which prepares itself
  std::string home_wait = "10min";  // how long a start waits for HOME
};

class MirrorRun {
 public:
  // `also`: called whenever the mirror is polled.
  explicit MirrorRun(const MirrorRequest& request, std::function<void()> also = {});

  // 0: the newest checkpoint is home. 75: it was told to stop before, or that one is damaged, or gone.
  // RefusedError: another mirror on this machine does it.
  int mirror();
  // Waits for HOME; then without it, from a good checkpoint in the run directory. RefusedError: a supervisor
  // on this machine does it.
  PreparedStart prepare(StartTries tries = {});
  // Without HOME, at once. HomeError: there is no good checkpoint in the run directory.
  PreparedStart go_alone(StartTries tries);
  Mirror& copies() { return mirror_; }
  Pace& pace() { return pace_; }
  // A trainer has claimed the run directory since this object was made.
  bool a_trainer_began() const;
  // A trainer's start, or `fetch`, holds the run directory while it fetches.
  bool a_start_fetches() const;
  // After SupersededError: claims the run directory, so that its trainer ends with 76 at its next look.
  // Leaves a trainer alone whose attempt was never claimed in HOME. Best effort.
  void end_trainer();
  bool told_to_stop() const { return end_.has_value(); }
  void poll();

 private:
  static void work_quietly();
  void hold_copies();
  void hold_starts();
  void look_at_place();
  PreparedStart begin(PreparedStart start);
  void hold_both(std::optional<Duration> limit);
  void hear();
  void give_way();
  bool trainer_may_save() const;

  const MirrorRequest request_;
  const Duration home_wait_;
  const AttemptNumber before_;  // the newest attempt when this began
  const std::function<void()> also_;
  SignalInbox inbox_;
  std::optional<SteadyTime> end_;  // after a signal
  SteadyTime next_look_{};         // at the trainer, after a signal
  bool preparing_ = false;
  bool said_not_home_ = false, looked_at_place_ = false;
  TrainerSigns trainer_;
  LocalLock copies_lock_;
  LocalLock starts_lock_;
  FileVerifier verifier_;
  Pace pace_;
  std::unique_ptr<Home> home_;
  Mirror mirror_;
};

}}  // namespace holdfast::v0_2
