#include "properties.h"

#include <array>
#include <cstddef>

#include "step.h"

namespace holdfast::test::fencing {
namespace {

// A user chose to leave it behind, and the history of `tip` is the one that he chose.
bool is_given_up(const World& world, int checkpoint, int tip) {
  for (int i = 0; i < kAttempts; ++i) {
    const Attempt& attempt = world.attempt(i);
    if (attempt.chose == 0 || attempt.number <= attempt_number_of(world, checkpoint)) continue;
    if (!is_in_history(world, checkpoint_of(i, 0), tip)) continue;
    if (!is_in_history(world, checkpoint, attempt.start)) return true;
  }
  return false;
}

bool finds_all(const World& world, int tip, bool with_a_past) {
  const auto finds = [&](int checkpoint) {
    return is_in_history(world, checkpoint, tip) || is_given_up(world, checkpoint, tip);
  };
  if (with_a_past && !finds(kPast - 1)) return false;
  for (int i = 0; i < kAttempts; ++i) {
    const Attempt& attempt = world.attempt(i);
    const bool safe_start = attempt.recovered != 0 && attempt.start != kNoFile && attempt.chose == 0;
    if (safe_start && !finds(attempt.start)) return false;
    if (attempt.saves > 0 && !finds(checkpoint_of(i, attempt.saves - 1))) return false;
  }
  return true;
}

// A cut may take any subset of the open operations: the newest file that recovery finds is the newest of
// those that no cut can take, or any open one that is newer.
bool nothing_lost(const World& world, bool with_a_past) {
  const auto certain = [](const Name& name) {
    return name.present != 0 && name.durable != 0 && name.unsynced == 0;
  };
  const int floor = newest(world, certain);
  if (!finds_all(world, floor, with_a_past)) return false;
  for (int file = 0; file < kCheckpoints; ++file) {
    const Name& name = world.name(file);
    const bool open = name.open() || (name.present != 0 && name.unsynced != 0);
    if (!open || name.torn != 0) continue;
    const auto newer = [&](const Name& other) { return &other == &name || certain(other); };
    const int tip = newest(world, newer);
    if (tip == file && !finds_all(world, tip, with_a_past)) return false;
  }
  return true;
}

// An attempt alone on the volume gets through.
bool gets_through(World world, int attempt, const Rule& rule, const Lives& lives) {
  constexpr int kMostSteps = 200;  // a standby that waits for ever does not get through
  const Attempt& self = world.attempt(attempt);
  for (int steps = 0; !is_end(self.step); ++steps) {
    if (steps == kMostSteps || take_step(world, attempt, 0, rule, lives) != Violation::none) return false;
  }
  return self.saves == lives.saves || self.said_end != 0;
}

// One that is still to begin can always go on; where all have begun, the one with the newest claim; and where
// that one has recorded its end, one that stands by.
bool one_goes_on(const World& world, const Rule& rule, const Lives& lives) {
  int newest = -1;
  int unborn = -1;
  int standby = -1;
  for (int i = 0; i < kAttempts; ++i) {
    const Attempt& attempt = world.attempt(i);
    if (attempt.step == Step::preflight) unborn = i;
    if (attempt.step == Step::stand_by) standby = i;
    const bool claimed = world.present(claim_of(i));
    if (claimed && (newest < 0 || attempt.number > world.attempt(newest).number)) newest = i;
  }
  const bool ended = newest >= 0 && world.attempt(newest).said_end != 0;
  if (ended && standby >= 0 && !gets_through(world, standby, rule, lives)) return false;
  if (unborn >= 0) return gets_through(world, unborn, rule, lives);
  // Over, and no other is left within the bounds.
  if (newest < 0 || world.attempt(newest).step >= Step::remove_abandoned) return true;
  return gets_through(world, newest, rule, lives);
}

}  // namespace

Violation check(const World& world, bool with_a_past, const Rule& rule, const Lives& lives) {
  if (!nothing_lost(world, with_a_past)) return Violation::lost;
  return one_goes_on(world, rule, lives) ? Violation::none : Violation::stuck;
}

const char* name_of(Violation violation) {
  static constexpr std::array kNamesOfViolations = {"none",
                                                    "lost: an acknowledged step is not found again",
                                                    "behind: acknowledged after a newer attempt listed",
                                                    "stray: a name after a newer attempt listed",
                                                    "touched: what a newer attempt wrote or grew from",
                                                    "early: a standby claims where nobody's end is recorded",
                                                    "stuck: no attempt goes on"};
  return kNamesOfViolations[static_cast<std::size_t>(violation)];
}

}  // namespace holdfast::test::fencing
