// A standby's wait for the run (HOLDFAST_STANDBY, docs/standby.md). While another attempt holds the run it
// claims nothing: it reads and verifies the newest checkpoint, follows newer ones, and renews its sign in the
// run directory (store/standby_sign.h). The ordinary start follows, and decides where the run goes on.
//
//   const AttemptNumber number = standby.await();   // 0: this process is no standby
//   store.claim({}, number);                        // refused if another start was quicker: await() again
//
// Errors: Error with NoticeOptions::exit_code_interrupted if the program is told to stop; Error with code 0
// if the run is complete; with the holder's code if nobody may go on; RefusedError if the newest checkpoint
// does not fit the program. A volume that cannot be read is looked at again.
// Threads: the training thread; it reads ahead on a thread of its own.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/start/standby_home.h"
#include "holdfast/checkpoint/internal/start/start_finder.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The other ranks of a standby, as rank 0 needs them while it waits.
struct StandbyRanks {
  std::function<void()> stand_by;  // called before each wait: they wait, too
  // True while the end of another rank's machine is announced. Throws RankChannel's errors if a rank is
  // lost, and another rank's error with its exit code.
  std::function<bool()> one_ends;
};

class StandbyWait {
 public:
  // Both references outlive this object. UsageError for a malformed variable.
  StandbyWait(Run& run, StartFinder& finder);
  ~StandbyWait();
  StandbyWait(const StandbyWait&) = delete;
  StandbyWait& operator=(const StandbyWait&) = delete;

  bool stands_by() const { return stands_by_; }
  // For rank 0 of several, before await().
  void wait_with(StandbyRanks others) { others_ = std::move(others); }
  // Returns once the run is free: the number of the attempt that takes over, for `only` of a claim. With a
  // HOME the run is claimed there, and the result is 0: nobody else claims in the run directory.
  AttemptNumber await();

 private:
  // What the run directory says at one moment.
  struct View {
    AttemptNumber highest = 0;  // read first: a start that comes between takes the next number
    LastWord word = {};
    std::string newest = {};  // name of the newest checkpoint; it may not verify
    std::optional<WallTime> sign = {};
    std::string trace = {};  // changes while the holder lives
  };

  struct ReadAhead {
    Selection found;
    std::optional<Start> start;  // of the first one: is it of this program?
  };

  // The checkpoint that was read last, or could not be.
  struct Tried {
    std::string name;
    std::optional<SteadyTime> again_at = {};  // after a failure
    std::string told = {};                    // the failed one that the log has named
  };

  // The attempts that the log has named.
  struct Told {
    std::optional<AttemptNumber> waits_for = {};
    std::optional<AttemptNumber> taken_over = {};  // whose end
  };

  View look();
  View look_here() const;
  View look_home();
  bool is_free(const View& view);
  bool holds_home() const { return home_ && home_->is_claiming(); }
  bool is_lost(const View& view);
  void follow(const View& view);
  void take_in();
  void finish_reading();
  void renew_sign();
  void withdraw_sign() noexcept;
  void say_for_whom(const View& view);
  void rest(Duration time);
  bool one_ends() const { return others_.one_ends && others_.one_ends(); }
  void hear_stop();
  void stop_reading();

  Run& run_;
  StartFinder& finder_;
  const bool stands_by_;
  const std::optional<Duration> takeover_after_;
  StandbyRanks others_;  // empty: one process
  StandbySign sign_;
  std::unique_ptr<StandbyHome> home_;  // null: the run directory is shared
  std::future<ReadAhead> reading_;
  Tried tried_;
  bool checked_ = false;  // a checkpoint of this run fits the program
  std::string trace_;
  SteadyTime changed_{};  // when the trace did
  SteadyTime renew_at_{};
  Told told_;
  bool troubled_ = false;
};

}}}  // namespace holdfast::v0_2::internal
