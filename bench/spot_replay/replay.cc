#include "replay.h"

#include <algorithm>
#include <array>
#include <random>

#include "hand_over.h"
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

// A machine's time with the run.
struct Turn {
  SteadyTime first;  // its first step begins
  SteadyTime end;
  std::optional<SteadyTime> seen = {};         // when it sees the notice of its end
  std::optional<SteadyTime> recommended = {};  // when it hears that it is at risk
};

// A machine that stands by, if it lives long enough to be ready.
struct Standby {
  SteadyTime begin;
  SteadyTime ready;
  SteadyTime end;
};

// One turn of the real thing. `standbys`: those that will come, if anyone does.
class Life {
 public:
  Life(const Turn& turn, const std::vector<Standby>* standbys, const ReplayOptions& options,
       const std::vector<MachineLife>& before, Dice& dice)
      : options_(options),
        dice_(dice),
        turn_(turn),
        standbys_(standbys),
        now_(turn.first),
        policy_({options.every ? SaveEvery(*options.every) : SaveEvery::automatic()}, now_, 0) {
    policy_.learn(before);
  }

  // When the run was handed over; nullopt: it was not.
  std::optional<SteadyTime> run(Replayed& sum) {
    while (now_ + options_.step <= turn_.end && step()) {
    }
    if (!handed_over_) settle(turn_.end);
    sum.kept += durable_ * options_.step;
    sum.saves += saves_;
    if (!turn_.seen) return handed_over_;
    ++sum.noticed;
    if (writing_ && writing_->urgent) ++sum.unfinished;
    if (insured_) sum.most_steps_lost = std::max(sum.most_steps_lost, steps_ - durable_);
    return handed_over_;
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
    const Plan plan = plan_now();
    switch (plan.move) {
      case Move::commit:
        if (!writing_) save(true);
        return true;
      case Move::last_commit:
        if (writing_) wait_for_write();
        if (steps_ != durable_ && plan_now().move == Move::last_commit) save(true);
        return false;
      case Move::stop:
        if (writing_) wait_for_write();
        if (steps_ != durable_ && !plan_now().too_late) {
          save(true);
          wait_for_write();
        }
        if (!writing_ && now_ < turn_.end) handed_over_ = now_;
        return false;
      case Move::wait:
        return false;
      case Move::train:
      case Move::go_on:
        if (!writing_ && plan.room && policy_.due(now_, steps_)) save(false);
        return true;
    }
    return true;
  }

  Plan plan_now() const {
    std::optional<Deadline> deadline;
    if (turn_.seen && now_ >= *turn_.seen) deadline = Deadline{.at = turn_.end};
    const bool leaves = deadline || (turn_.recommended && now_ >= *turn_.recommended);
    if (!leaves) return {};
    Standing standing;
    standing.covered = durable_ == steps_ || (writing_ && writing_->steps == steps_);
    standing.insured = insured_;
    if (writing_) standing.writing = now_ - writing_->boundary;
    if (!standbys_) return plan_for_deadline(now_, *deadline, costs_.costs(), standing, OnNotice::train_on);
    const bool ready = std::any_of(standbys_->begin(), standbys_->end(),
                                   [&](const Standby& one) { return one.ready <= now_ && now_ < one.end; });
    return plan_for_hand_over(now_, deadline, costs_.costs(), standing, OnNotice::train_on, ready);
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
    now_ = std::min(std::max(now_, writing_->ends), turn_.end);
    settle(now_);
  }

  const ReplayOptions& options_;
  Dice& dice_;
  const Turn turn_;
  const std::vector<Standby>* const standbys_;
  SteadyTime now_;
  SavePolicy policy_;
  CostModel costs_;
  std::optional<Write> writing_;
  std::optional<SteadyTime> handed_over_;
  std::int64_t steps_ = 0;
  std::int64_t durable_ = 0;
  std::int64_t saves_ = 0;
  bool insured_ = false;
};

// The ended lives that the save policy knows of: as many as the ledgers of a long run would tell of.
class Memory {
 public:
  void add(Duration life) {
    if (lives_.size() == kMost) lives_.erase(lives_.begin());
    lives_.push_back({life, true});
  }
  const std::vector<MachineLife>& lives() const { return lives_; }

 private:
  static constexpr std::size_t kMost = 100;
  std::vector<MachineLife> lives_;
};

// All machines of a run with standbys, in the order in which they boot.
class Relay {
 public:
  Relay(const std::vector<Duration>& lives, const ReplayOptions& options, StandBy when)
      : lives_(lives), options_(options), when_(when), dice_(options.seed + 1) {
    Dice dice(options.seed);
    chances_.reserve(lives.size());
    for (const Duration length : lives) chances_.push_back(dice.life(length, options));
    Dice risks(options.seed + 2);
    recommended_.reserve(lives.size());
    for (const Duration length : lives) {
      const bool drawn = risks.share() < options.recommended;
      recommended_.push_back(when == StandBy::on_rebalance && drawn &&
                             length > options.startup + options.lead);
    }
  }

  Replayed run(const std::string& what) {
    sum_.what = what;
    std::size_t holder = 0;
    SteadyTime begin = kBegin;
    SteadyTime first = kBegin + options_.startup;
    SteadyTime over = kBegin;
    while (holder < lives_.size()) {
      const Turn turn = turn_of(holder, begin, first);
      const std::vector<Standby> standbys = standbys_of(holder, turn);
      const SteadyTime last = over;
      const auto handed_over = Life(turn, &standbys, options_, memory_.lives(), dice_).run(sum_);
      memory_.add(lives_[holder]);
      ++sum_.preemptions;
      over = handed_over.value_or(turn.end);
      sum_.startup += std::min(first, over) - last;
      // A machine that hands over before its end is given back. Those that nobody needed had no cost beyond.
      std::size_t next = holder + 1;
      SteadyTime boots = over;
      SteadyTime ready = over + options_.startup;
      for (const Standby& one : standbys) {
        if (one.begin >= over) break;
        sum_.twice += std::min(one.end, over) - one.begin;
        if (one.end > over) {
          const bool told = handed_over.has_value();
          const SteadyTime known = over + (told ? Duration::zero() : options_.silence);
          boots = one.begin;
          ready = std::max(one.ready, known + options_.hand_over);
          break;
        }
        ++next;
      }
      holder = next;
      begin = boots;
      first = ready;
    }
    sum_.up = over - kBegin;
    return sum_;
  }

 private:
  Turn turn_of(std::size_t number, SteadyTime begin, SteadyTime first) const {
    const SteadyTime end = begin + lives_[number];
    Turn turn{.first = first, .end = end};
    const SteadyTime hears = begin + options_.hears;
    if (chances_[number].noticed) turn.seen = std::max(begin + chances_[number].seen, hears);
    if (when_ == StandBy::on_rebalance && recommended_[number]) {
      turn.recommended = end - options_.lead;
    }
    return turn;
  }

  std::vector<Standby> standbys_of(std::size_t holder, const Turn& turn) const {
    SteadyTime boots = turn.end;
    if (turn.seen) boots = std::min(boots, *turn.seen);
    if (turn.recommended) boots = std::min(boots, *turn.recommended);
    if (when_ == StandBy::always) boots = std::min(boots, turn.first);
    std::vector<Standby> coming;
    for (std::size_t i = holder + 1; i < lives_.size() && boots < turn.end; ++i) {
      coming.push_back({boots, boots + options_.startup, boots + lives_[i]});
      boots = coming.back().end;
    }
    return coming;
  }

  const std::vector<Duration>& lives_;
  const ReplayOptions& options_;
  const StandBy when_;
  Dice dice_;
  std::vector<Chance> chances_;
  std::vector<bool> recommended_;
  Memory memory_;
  Replayed sum_;
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

double Replayed::twice_minutes() const {
  return preemptions == 0 ? 0 : seconds(twice) / 60 / static_cast<double>(preemptions);
}

Replayed replay_holdfast(const std::vector<Duration>& lives, const ReplayOptions& options) {
  Replayed sum;
  sum.what = options.every ? "Holdfast, a fixed interval" : "Holdfast, interval chosen by itself";
  Dice chances(options.seed);
  Dice dice(options.seed + 1);
  Memory memory;
  for (const Duration length : lives) {
    const Chance chance = chances.life(length, options);
    add_life(sum, length, options);
    Turn turn{.first = kBegin + options.startup, .end = kBegin + length};
    if (chance.noticed) turn.seen = kBegin + chance.seen;
    Life(turn, nullptr, options, memory.lives(), dice).run(sum);
    memory.add(length);
  }
  return sum;
}

Replayed replay_standby(const std::vector<Duration>& lives, const ReplayOptions& options, StandBy when) {
  constexpr std::array kNames{"a standby on notice", "a standby on rebalance", "a standby always"};
  return Relay(lives, options, when).run(std::string("… with ") + kNames.at(static_cast<std::size_t>(when)));
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
