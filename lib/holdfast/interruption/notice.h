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
  withdrawn,       // what this source announced does not come after all
};

struct Notice {
  std::string source;  // "signal", "file", "ec2"
  NoticeKind kind = NoticeKind::stop;
  std::optional<SteadyTime> deadline = {};  // on the steady clock; absent where none is known
  std::string text = {};                    // one phrase for people: "SIGTERM from process 4711"
};

}  // namespace holdfast::inline v1
