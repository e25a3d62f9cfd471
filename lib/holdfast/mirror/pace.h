// How fast a mirror works, and how it stays answerable: it calls moved() after each block of a copy, and
// wait() where it has nothing to do. Both call `poll`, which may serve requests, and throws MirrorStopped to
// end the mirror. A copy in flight is then abandoned; no reader ever counts it.
//
// Errors: exceptions of `poll` pass through. Threads: one. All time comes from the Clock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

class MirrorStopped : public Error {
 public:
  MirrorStopped() : Error("the mirror was told to stop", ExitCode::interrupted) {}
};

class Pace {
 public:
  // `limit` in MB/s; 0: none. The clock outlives this object.
  // `give_way`: called by moved() alone; may wait, and may lift or restore the limit.
  explicit Pace(Clock& clock, double limit = 0, std::function<void()> poll = {},
                std::function<void()> give_way = {})
      : clock_(clock),
        limit_(limit),
        given_limit_(limit),
        poll_(std::move(poll)),
        give_way_(std::move(give_way)) {}

  void poll() const {
    if (poll_) poll_();
  }
  // Waits until the limit allows the next block.
  void moved(std::uint64_t bytes);
  void wait(Duration duration);
  // Ends the limit, because time presses.
  void lift_limit() { limit_ = 0; }
  void restore_limit() { limit_ = given_limit_; }
  double limit() const { return limit_; }
  // What moved() has waited for the limit, in all.
  Duration held_back() const { return held_back_; }
  // How long a call of HOME may stay silent before it counts as failed; nullopt: for ever.
  void set_patience(std::optional<Duration> patience) { patience_ = patience; }
  std::optional<Duration> patience() const { return patience_; }
  Clock& clock() const { return clock_; }

 private:
  Clock& clock_;
  double limit_;
  const double given_limit_;
  std::function<void()> poll_;
  std::function<void()> give_way_;
  Duration held_back_{};
  std::optional<Duration> patience_;
  SteadyTime free_{};  // when all blocks so far have taken the time that the limit gives them
};

}}  // namespace holdfast::v0_2
