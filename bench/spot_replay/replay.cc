#include "replay.h"

#include <algorithm>
#include <random>

#include "holdfast/planning/cost_model.h"
#include "holdfast/planning/deadline_planner.h"
#include "holdfast/planning/interval_planner.h"
#include "holdfast/planning/save_policy.h"

namespace holdfast::bench {
namespace {

constexpr SteadyTime kBegin{std::chrono::hours(1000)};

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// What chance decides about a life: the same for every way of saving.
struct Chance {
  bool noticed = false;
  Duration seen{};  // after the machine's begin
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  double share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  Chance life(Duration length, const ReplayOptions& options) {
    const bool noticed = share() >= options.missed;
    const auto late = std::chrono::duration_cast<Duration>(options.poll * share());
    return {noticed, std::max(length - options.notice, Duration::zero()) + late};
  }
  Duration commit(const ReplayOptions& options) {
    const double factor = 1 + options.commit_spread * (2 * share() - 1);
    return std::chrono::duration_cast<Duration>(options.commit * factor);
  }

 private:
  std::mt19937_64 random_;
};

// One life of the real thing.
class Life {
 public:
  Life(Duration length, const Chance& chance, const ReplayOptions& options,
       const std::vector<MachineLife>& before, Dice& dice)
      : options_(options),
        dice_(dice),
        end_(kBegin + length),
        seen_(kBegin + chance.seen),
        noticed_(chance.noticed),
        deadline_{.at = end_},
        now_(kBegin + options.startup),
        policy_({options.every ? SaveEvery(*options.every) : SaveEvery::automatic()}, now_, 0) {
    policy_.learn(before);
  }

  void run(Replayed& sum) {
    while (now_ + options_.step <= end_ && step()) {
    }
    settle(end_);
    sum.kept += durable_ * options_.step;
    sum.saves += saves_;
    if (!noticed_) return;
    ++sum.noticed;
    if (writing_ && writing_->urgent) ++sum.unfinished;
    if (insured_) sum.most_steps_lost = std::max(sum.most_steps_lost, steps_ - durable_);
  }

 private:
  struct Write {
    std::int64_t steps;
    SteadyTime boundary;
    SteadyTime ends;
    bool urgent;
  };

  // False: no step comes any more.
  bool step() {
    now_ += options_.step;
    ++steps_;
    costs_.stepped(options_.step);
    settle(now_);
    Plan plan;
    if (noticed_ && now_ >= seen_) plan = plan_now();
    switch (plan.move) {
      case Move::commit:
        if (!writing_) save(true);
        return true;
      case Move::last_commit:
        if (writing_) wait_for_write();
        if (steps_ != durable_ && plan_now().move == Move::last_commit) save(true);
        return false;
      case Move::wait:
      case Move::stop:
        return false;
      case Move::train:
      case Move::go_on:
        if (!writing_ && plan.room && policy_.due(now_, steps_)) save(false);
        return true;
    }
    return true;
  }

  Plan plan_now() const {
    Standing standing;
    standing.covered = durable_ == steps_ || (writing_ && writing_->steps == steps_);
    standing.insured = insured_;
    if (writing_) standing.writing = now_ - writing_->boundary;
    return plan_for_deadline(now_, deadline_, costs_.costs(), standing, OnNotice::train_on);
  }

  void save(bool urgent) {
    const SteadyTime boundary = now_;
    writing_ = Write{steps_, boundary, boundary + dice_.commit(options_), urgent};
    now_ += options_.stall;
    insured_ = insured_ || urgent;
    policy_.saved(boundary, steps_);
    ++saves_;
  }

  void settle(SteadyTime now) {
    if (!writing_ || writing_->ends > now) return;
    const Duration took = writing_->ends - writing_->boundary;
    durable_ = writing_->steps;
    costs_.committed(took);
    policy_.measured({.stall = options_.stall, .write = took});
    writing_.reset();
  }

  void wait_for_write() {
    now_ = std::min(std::max(now_, writing_->ends), end_);
    settle(now_);
  }

  const ReplayOptions& options_;
  Dice& dice_;
  const SteadyTime end_;
  const SteadyTime seen_;
  const bool noticed_;
  const Deadline deadline_;
  SteadyTime now_;
  SavePolicy policy_;
  CostModel costs_;
  std::optional<Write> writing_;
  std::int64_t steps_ = 0;
  std::int64_t durable_ = 0;
  std::int64_t saves_ = 0;
  bool insured_ = false;
};

void add_life(Replayed& sum, Duration length, const ReplayOptions& options) {
  ++sum.preemptions;
  sum.up += length;
  sum.startup += std::min(length, options.startup);
}

}  // namespace

double Replayed::lost_minutes() const {
  return preemptions == 0 ? 0 : seconds(up - kept) / 60 / static_cast<double>(preemptions);
}

double Replayed::goodput() const { return up > Duration::zero() ? seconds(kept) / seconds(up) : 0; }

Replayed replay_holdfast(const std::vector<Duration>& lives, const ReplayOptions& options) {
  // As many as the ledgers of a long run would tell of.
  constexpr std::size_t kRemembered = 100;
  Replayed sum;
  sum.what = options.every ? "Holdfast, a fixed interval" : "Holdfast, interval chosen by itself";
  Dice chances(options.seed);
  Dice dice(options.seed + 1);
  std::vector<MachineLife> before;
  for (const Duration length : lives) {
    const Chance chance = chances.life(length, options);
    add_life(sum, length, options);
    Life(length, chance, options, before, dice).run(sum);
    if (before.size() == kRemembered) before.erase(before.begin());
    before.push_back({length, true});
  }
  return sum;
}

Replayed replay_epochs(const std::vector<Duration>& lives, const ReplayOptions& options, Duration epoch,
                       bool sleeps, const std::string& what) {
  Replayed sum;
  sum.what = what;
  Dice chances(options.seed);
  for (const Duration length : lives) {
    const Chance chance = chances.life(length, options);
    add_life(sum, length, options);
    if (chance.noticed) ++sum.noticed;
    const Duration end = sleeps && chance.noticed ? std::min(chance.seen, length) : length;
    const Duration rest = std::max(end - options.startup, Duration::zero());
    const std::int64_t epochs = rest / (epoch + options.commit);
    sum.kept += epochs * epoch;
    sum.saves += epochs;
  }
  return sum;
}

}  // namespace holdfast::bench
