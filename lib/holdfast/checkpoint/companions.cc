#include "holdfast/checkpoint/companions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {
namespace {

// The order of a ballot's elements.
enum Element {
  at_save,
  at_stop,
  at_pause,
  at_busy,
  at_failing,
  at_durable,
  at_left,
  at_highest,
  at_lowest,
  at_needs,
  at_alone,
  at_plan,
  at_other_plan,
  at_capacity
};

// Of "the shortest time left", the larger is the more urgent; 0 is none.
constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();

std::int64_t urgency(const std::optional<Duration>& left) {
  if (!left) return 0;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*left).count();
  return kLongest - std::max<std::int64_t>(ms, 0);
}

int rank_in(std::int64_t element) { return static_cast<int>(element) - 1; }

std::string standing_of(std::int64_t rank, std::int64_t step) {
  return "rank " + std::to_string(rank) + " is at step " + std::to_string(step);
}

}  // namespace

Ballot ballot_of(const Vote& vote, int rank, int world_size) {
  const auto asks = [&](bool yes) { return yes ? std::int64_t{rank} + 1 : 0; };
  Ballot ballot{};
  ballot[at_save] = asks(vote.save);
  ballot[at_stop] = asks(vote.stop);
  ballot[at_pause] = asks(vote.pause);
  ballot[at_busy] = asks(vote.busy);
  ballot[at_failing] = asks(vote.failing);
  ballot[at_durable] = vote.durable;
  ballot[at_left] = urgency(vote.left);
  // The step with the rank behind it: of unequal ones the largest and the smallest say whose they are.
  ballot[at_highest] = vote.step * world_size + rank;
  ballot[at_lowest] = -ballot[at_highest];
  ballot[at_needs] = std::chrono::ceil<std::chrono::milliseconds>(vote.needs).count();
  ballot[at_alone] = asks(vote.alone);
  // Plans are equal when the largest is the smallest.
  ballot[at_plan] = vote.plan;
  ballot[at_other_plan] = -vote.plan;
  ballot[at_capacity] = vote.capacity;
  return ballot;
}

Ballot larger_of(const Ballot& one, const Ballot& other) {
  Ballot larger{};
  std::transform(one.begin(), one.end(), other.begin(), larger.begin(),
                 [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  return larger;
}

Agreed agreed_by(const Ballot& largest, int world_size) {
  const std::int64_t ahead = largest[at_highest] / world_size;
  const std::int64_t behind = -largest[at_lowest] / world_size;
  if (ahead != behind) {
    throw UsageError("the ranks have taken different numbers of steps: " +
                     standing_of(largest[at_highest] % world_size, ahead) + ", " +
                     standing_of(-largest[at_lowest] % world_size, behind) +
                     "; every rank has to make the same updates, and to leave the loop at the same one");
  }
  Agreed agreed;
  agreed.step = ahead;
  agreed.save = rank_in(largest[at_save]);
  agreed.stop = rank_in(largest[at_stop]);
  agreed.pause = rank_in(largest[at_pause]);
  agreed.busy = rank_in(largest[at_busy]);
  agreed.failing = largest[at_failing] > 0;
  agreed.durable = largest[at_durable];
  agreed.needs = std::chrono::milliseconds(largest[at_needs]);
  agreed.alone = largest[at_alone] > 0;
  if (largest[at_plan] == -largest[at_other_plan]) agreed.plan = largest[at_plan];
  agreed.capacity = largest[at_capacity];
  if (largest[at_left] > 0) agreed.left = std::chrono::milliseconds(kLongest - largest[at_left]);
  return agreed;
}

void Companions::take() {
  if (std::exchange(taken_, true)) {
    throw UsageError("these companions have served another Checkpointer: each needs its own (an Agreement)");
  }
}

}  // namespace holdfast::inline v1
