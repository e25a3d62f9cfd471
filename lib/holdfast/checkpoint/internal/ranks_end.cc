#include "holdfast/checkpoint/internal/ranks_end.h"

#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Rank 0 commits, however slow its disk; that it has died or hangs is noticed by the store.
constexpr Duration kOutcomeWait = std::chrono::hours(1);

}  // namespace

void RanksEnd::finish() {
  or_abandon([&] {
    part();
    if (group_.leads()) {
      engine_.late.drop();  // the state at the end is staged at once instead
      engine_.end.finish([this] { return partners_.told_to_stop(); });
      group_.tell(partners_.asked() ? kAfterAll : kOutcome, {{"code", engine_.end.code()},
                                                             {"reason", engine_.end.reason()},
                                                             {"durable", run_.newest_durable()}});
    } else {
      Decision last;
      if (partners_.rounds().plan() != 0) sender_.send(last, true);
      partners_.rounds().end(last);
      hear_outcome();
    }
  });
}

// All have left their loops at the same step. All must agree whether it was an interruption. The last vote
// alone decides whether there is time for a save: the vote before the stop has counted one more step.
void RanksEnd::part() {
  const auto count = [this](const Agreed& agreed) {
    if (agreed.stop >= 0) votes_.hear_stop(agreed);
    partners_.end_without_save(agreed.stop >= 0 && agreed.hopeless());
  };
  engine_.evaluation.drop_image();
  if (votes_.pending()) {
    const Agreed agreed = votes_.await("the vote of the last step", true);
    votes_.learn(agreed);
    count(agreed);
  }
  votes_.post_last();
  const Agreed agreed = votes_.await("the end of the run", true);
  group_.learn(agreed);
  engine_.saves.unsavable().refuse_for(agreed.unsavable);
  count(agreed);
  partners_.find_torn(agreed.torn);
  // All ranks find one answer.
  if (agreed.torn >= 0 || agreed.durable >= run_.step() || partners_.hopeless()) return;
  partners_.bring_together();
  // Now: before, the own state of a rank may lie on others.
  if (!group_.leads()) sender_.tell_own();
  if (agreed.save >= 0) partners_.rounds().begin(agreed);
}

void RanksEnd::hear_outcome() {
  nlohmann::json outcome = group_.hear(0, kOutcome, kOutcomeWait);
  if (outcome.value("asks", false)) {
    group_.tell(kToldToStop, {{"told", run_.outlook.must_stop()}});
    outcome = group_.hear(0, kAfterAll, kOutcomeWait);
  }
  const std::int64_t durable = outcome.value("durable", std::int64_t{-1});
  Durable& known = run_.started.durable;
  if (durable > known.step) known = {durable, {}, run_.clock.now()};
  // Before settle(): saves that rank 0 has made durable end as durable, and only the others as failed.
  group_.learn({.step = run_.step(), .durable = durable});
  if (!sender_.rest(Duration::zero())) engine_.end.leave_thread_behind();
  group_.settle(SaveStatus::failed, "rank 0 could not write it: its log says why");
  engine_.end.adopt_outcome(outcome.value("code", static_cast<int>(ExitCode::internal)),
                            outcome.value("reason", std::string()));
}

void RanksEnd::or_abandon(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    abandon(error);
    throw;
  } catch (const std::bad_alloc&) {
    const OutOfMemoryError error;
    abandon(error);
    throw error;
  } catch (const std::exception& what) {
    const Error error(what_of(what));
    abandon(error);
    throw error;
  }
}

// A rank is lost, or the ranks took different numbers of steps.
void RanksEnd::abandon(const Error& error) noexcept {
  // The end is written already, and only telling the other ranks has failed.
  if (engine_.end.over()) return;
  if (!sender_.rest(kPartingGrace)) engine_.end.leave_thread_behind();
  group_.settle(SaveStatus::failed, "a rank was lost before rank 0 reported the outcome");
  engine_.end.break_off(error);
}

}}}  // namespace holdfast::v0_2::internal
