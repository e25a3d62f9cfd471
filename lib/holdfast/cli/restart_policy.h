// What `holdfast supervise` does when the command has ended: start it again, and when, or stop, and why.
//
//   75                       again, when the machine lives; paused on purpose, nothing is wrong
//   crash, any other code    again: SIGSEGV, SIGKILL (out of memory), an exception
//   0, 64, 74, 76, 78, 130   stop: complete, wrong options, the volume, superseded, refused, second Ctrl-C
//   126, 127                 stop: there is nothing to start
//
// A restart waits: 1 s, twice as long each time there was no progress, one minute at most. So many restarts
// in a row without progress end it. Whoever was asked to stop never starts again. After a notice for this
// machine a restart waits until the deadline has passed by a minute: on a machine that is about to die it
// would only claim the run, and the one that replaces it would have to wait for the volume. Not for a
// deadline that is further away than ten minutes: until then there is something to be trained.
//
// Threads: one. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/cli/attended_child.h"

namespace holdfast::inline v1 {

struct RestartOptions {
  int max_restarts = 10;  // in a row without progress; 0: none at all
  Duration first_delay = std::chrono::seconds(1);
  Duration longest_delay = std::chrono::minutes(1);
  Duration after_deadline = std::chrono::seconds(60);  // the machine lives if we still do
  Duration near_deadline = std::chrono::minutes(10);   // one that is further away is not waited for
};

struct LifeFacts {
  Ending ending;
  bool asked_to_stop = false;  // the wrapper got SIGTERM, SIGINT or SIGHUP
  bool progress = false;       // a newer step was committed, or nobody can tell and it lived long
  std::optional<Duration> deadline_left = {};  // until the machine goes away; negative: that has passed
};

struct RestartDecision {
  bool restart = false;
  Duration delay{};
  std::string text = {};  // one line: what ended, what comes now, why
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartOptions& options = {}) : options_(options) {}
  RestartDecision after(const LifeFacts& life);

 private:
  Duration delay() const;

  RestartOptions options_;
  int in_a_row_ = 0;  // restarts without progress
};

}  // namespace holdfast::inline v1
