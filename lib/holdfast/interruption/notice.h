// News of an interruption, from whatever source.
//
// Threads: plain values.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

enum class NoticeKind {
  checkpoint_now,  // commit soon and go on (SIGUSR1)
  stop,            // commit and leave with exit code 75 before the deadline (SIGTERM, Ctrl-C)
  deadline,        // the machine goes away at the deadline; policy decides how the time until then is spent
  at_risk,    // it may come soon (EC2's rebalance recommendation): save, save more often for a while, go on
  withdrawn,  // what this source announced with `deadline` does not come after all
};

struct Notice {
  std::string source;  // "signal", "file", "ec2"
  NoticeKind kind = NoticeKind::stop;
  std::optional<SteadyTime> deadline = {};  // on the steady clock; absent where none is known
  std::string text = {};                    // one phrase for people: "SIGTERM from process 4711"
  // The machine will sleep and wake up again with this process in its memory: commit at once, then go on.
  bool hibernates = false;
  // When this process first saw it; the Monitor fills it in where a source does not.
  std::optional<SteadyTime> seen = {};
};

}  // namespace holdfast::inline v1
