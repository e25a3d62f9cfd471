// What may happen to a simulated training, and what it chooses: faults as bits of a mask, so that a failing
// seed can be shrunk; and the disk, whose operations take virtual time, fail and hang.
//
// Errors: none. Threads: fibers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fibers.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast::simulation {

// clang-format off
#define HOLDFAST_SHELL_FAULTS(fault)                                                                        \
  fault(several) fault(preemptions) fault(by_priority) fault(stalls) fault(spurious)                        \
  fault(announces_updates) fault(evaluations) fault(exceptions) fault(second_image) fault(write_limit)      \
  fault(by_steps) fault(by_time) fault(automatic) fault(saves) fault(requests) fault(calls_back)            \
  fault(best) fault(slow_disk) fault(failing_disk) fault(hanging_disk) fault(full_disk) fault(stop)         \
  fault(notice) fault(guess) fault(withdraw) fault(hibernate) fault(several_notices) fault(other_policy)    \
  fault(kill) fault(power) fault(lost_rank) fault(rival) fault(blind_ranks)                                 \
  fault(expects_end) fault(fast_steps) fault(unshared) fault(reads_ahead) fault(peeks) fault(asks)
#define HOLDFAST_SHELL_PROMISES(promise)                                                                    \
  promise(acknowledged_is_found) promise(resumed_is_a_boundary) promise(never_stuck)                        \
  promise(finish_returns) promise(destructor_returns) promise(code_0_is_complete)                           \
  promise(code_75_was_told) promise(code_74_had_a_failure) promise(code_76_has_a_newer_attempt)             \
  promise(ranks_tell_the_same) promise(state_agrees_with_the_code) promise(saves_are_settled)               \
  promise(settled_once) promise(told_in_order) promise(superseded_acknowledges_nothing)                     \
  promise(newest_step_before_the_end) promise(stop_saves_the_newest_step) promise(request_is_served)        \
  promise(undisturbed_saves_succeed) promise(run_completes) promise(durable_is_told_by_the_handle)          \
  promise(on_save_after_finish) promise(interval_is_kept) promise(waiters_wake)                             \
  promise(stop_waits_for_the_disk_alone) promise(run_goes_on_afterwards) promise(stop_ends_in_time)         \
  promise(stop_is_heard) promise(lives_keep_a_small_volume)
// clang-format on

enum class ShellFault : unsigned {
#define HOLDFAST_NAME(name) name,
  HOLDFAST_SHELL_FAULTS(HOLDFAST_NAME) count
};
enum class ShellPromise : unsigned { HOLDFAST_SHELL_PROMISES(HOLDFAST_NAME) count };
#undef HOLDFAST_NAME
inline constexpr auto kShellFaults = static_cast<unsigned>(ShellFault::count);
inline constexpr auto kShellPromises = static_cast<unsigned>(ShellPromise::count);
using ShellFaults = std::uint64_t;
constexpr ShellFaults bit(ShellFault fault) { return ShellFaults{1} << static_cast<unsigned>(fault); }
const char* name_of(ShellFault fault);
const char* name_of(ShellPromise promise);

// Bits of ShellFault. Every fourth seed is calm: no disk, thread or machine fails, so promises about time
// hold.
ShellFaults shell_faults_of(std::uint64_t seed);
bool is_calm(ShellFaults faults);

// Draws of one purpose, which do not depend on those of others.
class Chance {
 public:
  Chance(std::uint64_t seed, std::uint64_t purpose)
      : state_(seed * 0x9e3779b97f4a7c15 ^ purpose * 0xbf58476d1ce4e5b9) {
    draw(2);
  }
  std::uint64_t draw(std::uint64_t below) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
  }
  bool one_in(std::uint64_t count) { return draw(count) == 0; }
  Duration between(Duration least, Duration most) {
    return least +
           Duration(static_cast<std::int64_t>(draw(static_cast<std::uint64_t>((most - least).count()) + 1)));
  }

 private:
  std::uint64_t state_;
};

// The times of one attempt's disk.
class Weather {
 public:
  struct Spell {
    SteadyTime from = Fibers::kNever, until = Fibers::kNever;
    bool on(SteadyTime now) const { return now >= from && now < until; }
  };
  explicit Weather(std::uint64_t seed) : chance_(seed, 1) {}

  Duration sync = std::chrono::milliseconds(20);
  double bytes_a_second = 100e6;
  bool uneven = false;  // some operations take much longer
  Spell fails, hangs, full;
  bool reads_fail = false;

  // Before each operation of that rank's view of the disk.
  void at(const test::Operation& operation, test::FaultFileSystem& view);

  int failures = 0, hung = 0;

 private:
  Chance chance_;
};

}  // namespace holdfast::simulation
