// Decides what `holdfast supervise` does when the command has ended: start it again, when, or stop, and why.
//
//   75                       again, if the machine lives: an interruption is no failure
//   74                       again, for an hour: a volume attached late, one EIO, ESTALE
//   0, 64, 76, 78, 130       stop: complete, wrong options, superseded, refused, second Ctrl-C
//   126, 127                 stop: there is nothing to start
//   crash, any other code    again, with growing delays and a limit of restarts without progress
//
// docs/operations.md#restart-after-interruptions has the delays and limits. After a notice for this machine a
// restart waits until it has outlived the deadline: a new attempt on a dying machine would only block its
// replacement. Errors: none. Threads: one.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {

struct RestartOptions {
  int max_restarts = 10;  // in a row without progress; 0: never restart. Ten have a lasting cause
  Duration first_delay = std::chrono::seconds(1);      // doubled while there is no progress
  Duration longest_delay = std::chrono::minutes(1);    // costs at most that much training time
  Duration after_deadline = std::chrono::seconds(60);  // if we still live then, the machine lives on
  Duration retry_volume = std::chrono::hours(1);       // after the first 74 in a row; 0: 74 is final
  Duration near_deadline = std::chrono::minutes(10);   // a later deadline is not waited for: train until then
};

struct LifeFacts {
  Ending ending;
  SteadyTime ended = {};
  bool asked_to_stop = false;  // the wrapper got SIGTERM, SIGINT or SIGHUP
  bool progress = false;       // a newer step was committed; or that is unknown, and it lived long
  bool stood_still = false;    // it was ended because its step did not move
  bool time_is_over = false;   // the run's own time: max_wall, its job
  bool handed_over = false;    // to a standby, because this machine's end is announced
  std::string remark = {};     // why `ending` differs from what the command returned; empty: it does not
  std::optional<Duration> deadline_left = {};  // until the machine's end; negative: that has passed
};

struct RestartDecision {
  bool restart = false;
  bool gave_up = false;    // it stops although the run is not complete and nobody asked for a stop
  bool resumable = false;  // it stops because its time here is over, or by request: a later job may continue
  int code = 0;            // exit code of the wrapper, if it stops
  Duration delay{};
  std::string text = {};  // one line: what ended, what happens now, why
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartOptions& options = {}) : options_(options) {}
  RestartDecision after(const LifeFacts& life);

 private:
  Duration delay(int in_a_row) const;

  RestartOptions options_;
  int in_a_row_ = 0;                             // restarts without progress
  int stalls_ = 0;                               // lives in a row that stood still, without progress
  int volume_in_a_row_ = 0;                      // restarts after 74
  std::optional<SteadyTime> volume_since_ = {};  // time of the first 74 in a row
};

}}  // namespace holdfast::v0_2
