#include "holdfast/ranks/rank_channel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
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
  at_capacity,
  at_torn,
  at_named_left,
  at_step_time,
  at_due,
  at_unsavable,
  at_sleep_left
};

// Encodes "the least time left" so that a maximum finds it: less time is a larger number; 0 is none.
constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();

std::int64_t urgency(const std::optional<Duration>& left) {
  if (!left) return 0;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*left).count();
  // A deadline that has passed is the most urgent of all.
  return kLongest - std::max<std::int64_t>(ms, 0);
}

std::optional<Duration> time_left(std::int64_t urgency) {
  if (urgency <= 0) return std::nullopt;
  return std::chrono::milliseconds(kLongest - urgency);
}

int rank_in(std::int64_t element) { return static_cast<int>(element) - 1; }

std::string standing_of(std::int64_t rank, std::int64_t step) {
  return "rank " + std::to_string(rank) + " is at step " + std::to_string(step);
}

}  // namespace

Ballot ballot_of(const Vote& vote, int rank, int world_size) {
  // Rank + 1, so that 0 means "nobody" and the maximum names a rank.
  const auto asks = [&](bool yes) { return yes ? std::int64_t{rank} + 1 : 0; };
  Ballot ballot{};
  ballot[at_save] = asks(vote.save);
  ballot[at_stop] = asks(vote.stop);
  ballot[at_pause] = asks(vote.pause);
  ballot[at_busy] = asks(vote.busy);
  ballot[at_failing] = asks(vote.failing);
  ballot[at_durable] = vote.durable;
  ballot[at_left] = urgency(vote.left);
  // Step and rank in one number. If steps differ, the largest and the smallest number name their ranks.
  // Fits: steps have at most 18 digits in names, and real steps times ranks stay far below 2^63.
  ballot[at_highest] = vote.step * world_size + rank;
  ballot[at_lowest] = -ballot[at_highest];
  ballot[at_needs] = std::chrono::ceil<std::chrono::milliseconds>(vote.needs).count();
  ballot[at_alone] = asks(vote.alone);
  // All plans are equal if and only if the largest equals the smallest.
  ballot[at_plan] = vote.plan;
  ballot[at_other_plan] = -vote.plan;
  ballot[at_capacity] = vote.capacity;
  ballot[at_named_left] = urgency(vote.named_left);
  ballot[at_sleep_left] = urgency(vote.sleep_left);
  ballot[at_torn] = asks(vote.torn);
  ballot[at_unsavable] = asks(vote.unsavable);
  ballot[at_step_time] = vote.step_time.count();
  ballot[at_due] = vote.due;
  return ballot;
}

Ballot larger_of(const Ballot& one, const Ballot& other) {
  Ballot larger{};
  std::transform(one.begin(), one.end(), other.begin(), larger.begin(),
                 [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  return larger;
}

Agreed agreed_by(const Ballot& largest, int world_size) {
  // The division takes the rank off again, because ranks are smaller than the world's size.
  const std::int64_t ahead = largest[at_highest] / world_size;
  const std::int64_t behind = -largest[at_lowest] / world_size;
  if (ahead != behind) {
    throw UsageError("the ranks have taken different numbers of steps: " +
                     standing_of(largest[at_highest] % world_size, ahead) + ", " +
                     standing_of(-largest[at_lowest] % world_size, behind) +
                     "; every rank has to make the same updates, and to leave the loop at the same one");
  }
  // Checked before anything else is read: values of different steps have no common meaning.
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
  agreed.torn = rank_in(largest[at_torn]);
  agreed.unsavable = rank_in(largest[at_unsavable]);
  agreed.left = time_left(largest[at_left]);
  agreed.named_left = time_left(largest[at_named_left]);
  agreed.sleep_left = time_left(largest[at_sleep_left]);
  agreed.step_time = Duration(largest[at_step_time]);
  agreed.due = largest[at_due];
  return agreed;
}

void RankChannel::take() {
  if (std::exchange(taken_, true)) {
    throw UsageError(
        "this channel to other ranks has served another Checkpointer: each needs its own (an Agreement)");
  }
}

}}  // namespace holdfast::v0_2
