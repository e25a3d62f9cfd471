// The saves that have failed since the last one that succeeded, and what is logged about them. The first is a
// warning. One whose reason may pass by itself (the volume, memory, another rank) is then logged no more; one
// whose reason cannot pass is logged as an error at each interval, because it needs a person.
//
// Errors: none; without memory texts become shorter. Threads: any, under the owner's lock.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {

// False where only another program, another machine or a person can help: what the state's own code or the
// layout of the file refuses, a volume that is read-only.
bool may_pass(const std::exception& error) noexcept;

// `lasts`: the reason cannot pass by itself. `ends_run`: nor does the training go on.
enum class FailureKind { may_pass, lasts, ends_run };

class FailureStreak {
 public:
  struct Line {
    LogLevel level = LogLevel::debug;
    std::string text = {};
  };

  // Returns what to log. `durable`: the newest durable step of this attempt; -1: none.
  Line failed(const std::string& text, FailureKind kind, SteadyTime now, std::int64_t durable) noexcept;
  // True if there was a failure.
  bool succeeded() noexcept;

  struct State {
    std::int64_t count = 0;  // failures in a row
    SteadyTime first{};
    SteadyTime last{};
    bool lasts = false;  // the last one's reason cannot pass by itself
  };
  // nullopt: the last save succeeded.
  std::optional<State> state() const noexcept;
  const std::string& text() const { return text_; }  // of the last failure

 private:
  State state_;
  SteadyTime logged_{};
  std::string text_;
};

}}  // namespace holdfast::v0_2
