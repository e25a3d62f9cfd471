// A notice: news of an interruption, from any source. Times are on the steady clock.
//
// Errors: none. Threads: plain values.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

enum class NoticeKind {
  checkpoint_now,  // commit soon and continue (SIGUSR1)
  stop,            // commit, and end with exit code 75 before the deadline (SIGTERM, Ctrl-C)
  deadline,        // the machine ends at the deadline; a policy decides how to use the time until then
  at_risk,    // the end may come soon (EC2's rebalance recommendation): save now, and more often for a while
  withdrawn,  // the source takes back what it announced with `deadline`
  thawed,     // what the source announced with `stands_still` is over, or does not come
};

struct Notice {
  std::string source = {};  // "signal", "file", "ec2"
  NoticeKind kind = NoticeKind::stop;
  std::optional<SteadyTime> deadline = {};  // on the steady clock; unset if unknown
  std::string text = {};                    // one phrase for people: "SIGTERM from process 4711"
  // The machine will sleep and wake up with this process in memory: commit at once, then continue.
  bool hibernates = false;
  // With at_risk: the machine will stand still for at most this time, at an unknown moment, and then
  // continue.
  std::optional<Duration> stands_still = {};
  // Nobody named the deadline: it is a usual grace period (term_grace.h), or 110 s (kUnknownNoticeTime). A
  // save should end by then, and is not skipped if it cannot.
  bool guessed = false;
  // When this process first saw it. The Monitor fills it in if the source does not.
  std::optional<SteadyTime> seen = {};
  // Set by the Monitor: the same for all notices of one source, whatever its name; null: posted by the
  // program.
  const void* from = nullptr;
};

}}  // namespace holdfast::v0_2
