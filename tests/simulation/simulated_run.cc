// Attempts, machines and their notices.
#include "simulated_run.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace holdfast::simulation {

using namespace run;

Counted counted;

const char* name_of(Fault fault) {
#define HOLDFAST_NAME(name) #name,
  static constexpr const char* kNames[] = {HOLDFAST_FAULTS(HOLDFAST_NAME)};
  return kNames[fault];
}

const char* name_of(Promise promise) {
  static constexpr const char* kNames[] = {HOLDFAST_PROMISES(HOLDFAST_NAME)};
#undef HOLDFAST_NAME
  return kNames[static_cast<unsigned>(promise)];
}

std::uint64_t mix(std::uint64_t one, std::uint64_t other) {
  std::uint64_t z = one * 0x9e3779b97f4a7c15ULL + other + 0x7f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

namespace {

constexpr int kProgramsRequest = 99;  // a source
constexpr int kStopSource = 50;

// With these, promises about time do not hold.
constexpr Faults kDisturbing = bit(slow) | bit(fail) | bit(hang) | bit(power) | bit(vote_late) |
                               bit(vote_lost) | bit(evaluation_throws) | bit(supersede) | bit(torn_finish) |
                               bit(stage_fails) | bit(long_step) | bit(slow_tidy) | bit(spoil) |
                               bit(no_update_call);

}  // namespace

std::uint64_t SimulatedRun::draw(std::uint64_t what, std::uint64_t n) const {
  return mix(mix(seed_, what), n);
}

bool SimulatedRun::happens(Fault fault, std::uint64_t n, std::uint64_t percent) const {
  return has(fault) && draw(1000 + fault, n) % 100 < percent;
}

Ms SimulatedRun::between(std::uint64_t what, std::uint64_t n, Ms from, Ms to) const {
  return from + static_cast<Ms>(draw(what, n) % static_cast<std::uint64_t>(to - from + 1));
}

void SimulatedRun::after(Ms delay, std::function<void()> work) {
  queue_.push({now_ + delay, ++order_, attempt_, std::move(work)});
}

void SimulatedRun::promise(Promise which, bool held, const char* broken) {
  ++counted.promises[static_cast<std::size_t>(which)];
  if (!held) throw Broken{std::string(name_of(which)) + ": " + broken};
}

void SimulatedRun::tell(const char* what, int r, std::int64_t number) const {
  if (trace_)
    std::printf("%9lld ms  rank %d  %s %lld\n", static_cast<long long>(now_), r, what,
                static_cast<long long>(number));
}

SimulatedRun::SimulatedRun(std::uint64_t seed, Faults faults, bool trace)
    : seed_(seed), faults_(faults), trace_(trace) {
  world_ = has(several) ? 2 + static_cast<int>(draw(1, 0) % (draw(1, 1) % 8 == 0 ? 7 : 2)) : 1;
  last_ = between(2, 0, 30, 230);
  step_ms_ = between(3, 0, 50, draw(3, 1) % 2 != 0 ? 3000 : 350);
  write_ms_ = between(4, 0, 100, 8000);
  calm_ = (faults_ & kDisturbing) == 0;
  every_ =
      draw(5, 2) % 5 < (calm_ ? 4U : 2U) ? 500 : between(5, 0, 3, 43);  // 500: only notices and the end save
  every_ms_ = has(by_time) ? between(5, 1, 10'000, 70'000) : 0;
  longest_wait_ = !calm_ && draw(9, 1) % 4 == 0 ? 4'000 : kLongestWait;
  tick_ms_ = draw(9, 0) % 3 == 0 ? 4'000 : 900;  // in an evaluation
  home_ms_ = has(mirror) ? between(8, 0, 500, 20'000) : 0;
  evaluate_every_ = between(6, 0, 5, 25);
  if (draw(6, 1) % 2 == 0) evaluate_every_ = std::min(every_, evaluate_every_);
  constexpr OnNotice kPolicies[] = {OnNotice::train_on, OnNotice::train_on, OnNotice::wait, OnNotice::exit};
  policy_ = kPolicies[draw(7, 0) % 4];
  ranks_.resize(static_cast<std::size_t>(world_));
  for (int r = 0; r < world_; ++r) {
    auto& truth = rank(r).truth;
    truth.reserve(static_cast<std::size_t>(last_) + 2);
    truth.push_back(mix(seed, static_cast<std::uint64_t>(r)));
    for (Step step = 1; step <= last_ + 1; ++step)
      truth.push_back(mix(truth.back(), static_cast<std::uint64_t>(step)));
  }
  if (seed % kRealStores != 0) return;
  real_ = std::make_unique<RealStore>(
      seed, [this](Promise which, bool held, const char* broken) { promise(which, held, broken); });
}

std::string SimulatedRun::run() {
  try {
    start_attempt();
    std::uint64_t at_once = 0;
    while (!queue_.empty() && !complete_) {
      const Item item = queue_.top();
      queue_.pop();
      at_once = item.at == now_ ? at_once + 1 : 0;
      promise(Promise::calls_return, at_once < 20'000 && item.at < 24 * kHour,
              "time stands still, or a day has passed");
      now_ = item.at;
      if (item.attempt == attempt_) item.work();
    }
    promise(Promise::calls_return, complete_, "the run never came to its end");
    if (real_) ask_the_store();
  } catch (const Broken& broken) {
    return broken.what;
  } catch (const std::exception& error) {  // of the real store's disk
    return std::string("an exception: ") + error.what();
  }
  return {};
}

// Machines.

void SimulatedRun::start_attempt() {
  ++attempt_;
  ++counted.attempts;
  promise(Promise::calls_return, attempt_ <= 12, "twelve attempts did not complete the run");
  if (real_) ask_the_store();
  choose_branch();
  const Step from = store_.empty() ? 0 : store_.rbegin()->first;
  promise(Promise::acknowledged_is_kept, from >= acknowledged_, "an acknowledged step was lost");
  began_ = last_commit_ = last_begun_ = now_;
  last_code_ = -1;
  told_ = open_ends_ = requests_ = 0;
  stop_told_ = broken_ = superseded_ = heard_newer_ = torn_called_ = standby_seen_ = said_not_home_ =
      said_torn_ = any_hibernation_ = false;
  only_sleeps_ = true;
  last_tried_ = no_step_ = gave_up_ = false;
  guess_at_ = finish_at_ = requested_at_ = stop_ends_by_ = -1;
  requested_step_ = -1;
  standby_ = handed_over_by_ = kFar;
  write_times_.clear(), measured_times_.clear(), stalls_.clear();
  arrived_.clear(), sent_.clear(), shares_.clear(), declined_.clear(), refused_.clear(), ended_.clear();
  ballots_.clear(), voters_.clear(), saved_.clear();
  disk_ = {};
  home_ = going_home_ = -1;
  SaveTriggers every;
  if (has(automatic)) every.push_back(SaveEvery::automatic());
  if (every_ms_ > 0) every.emplace_back(std::chrono::milliseconds(every_ms_));
  if (every.empty()) every.push_back(SaveEvery::steps(every_));
  for (int r = 0; r < world_; ++r) {
    Rank fresh;
    fresh.truth = std::move(rank(r).truth);
    fresh.alive = true;
    fresh.step = from;
    fresh.live = fresh.truth[static_cast<std::size_t>(from)];
    fresh.core.emplace(RunOptions{.rank = r,
                                  .world = world_,
                                  .every = every,
                                  .on_notice = policy_,
                                  .look = std::chrono::milliseconds(500),
                                  .on_device = has(by_device),
                                  .second_image = has(two_images),
                                  .needs_others = world_ > 1 && has(spread),
                                  .resumed = from,
                                  .resumed_durable = branch_<0, .durable = from> 0 ? from : -1,
                                  .started = steady(now_)});
    rank(r) = std::move(fresh);
  }
  tell("starts at step", 0, from);
  if (faulty()) plan_trouble((last_ - from) * step_ms_ + 10'000);
  // Such as a program whose data is empty.
  no_step_ = attempt_ == 1 && from == 0 && happens(no_step, 0, 10);
  if (no_step_ && draw(64, 0) % 2 == 0) after(0, [this] { stop_at_the_end(); });
  for (int r = 0; r < world_; ++r) {
    after(1, [this, r] { rank(r).step >= last_ || no_step_ ? finish(r) : begin_step(r); });
  }
}

// A start that names an older checkpoint (resume_from) goes on from there until its branch has a newer one.
void SimulatedRun::choose_branch() {
  const Step newest = store_.empty() ? -1 : store_.rbegin()->first;
  if (branch_ >= 0 && newest > branch_) branch_ = -1;
  if (branch_ >= 0 || real_ || store_.size() < 2 || !faulty() || !happens(branch, key(12), 50)) return;
  branch_ = std::prev(store_.end(), 2)->first;
  store_.erase(std::prev(store_.end()));  // of another branch now
  acknowledged_ = std::min(acknowledged_, branch_);
}

void SimulatedRun::plan_trouble(Ms horizon) {
  struct {
    Ms at = 0, left = 0, gone = kFar;
  } first;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t k = key(i);
    int r = static_cast<int>(draw(10, k) % static_cast<std::uint64_t>(world_));
    if (calm_ && r == 0) r = world_ - 1;  // rank 0 hears of the others' ends by votes alone
    const bool guessed = happens(guess, k, 50);
    const bool sleeps = happens(hibernate, k, 30);
    const bool lives = happens(outlive, k, 40) || sleeps;
    Ms left = between(12, k, 3'000, draw(12, key(70 + i)) % 3 == 0 ? 20'000 : 300'000);
    Ms gone = happens(withdraw, k, 40) ? between(13, k, 100, left) : kFar;
    Ms at = between(11, k, 0, horizon);
    // The second one often comes when the first is withdrawn, or ends shortly after it.
    const std::uint64_t follows = i == 1 ? draw(11, key(9)) % 3 : 2;
    if (follows == 0) {
      at = first.at + (first.gone < kFar ? first.gone : 0) + between(11, key(8), 0, 15'000);
      if (calm_) gone = kFar;
      if (calm_) left = 300'000;
    }
    if (follows == 1) {
      at = first.at + between(11, key(8), 0, first.left);
      left = std::max<Ms>(first.at + first.left - at, 0) + between(12, key(8), 500, 40'000);
    }
    // Some are withdrawn when only the last save has room, and the program has just asked for one.
    const Ms no_room =
        left - longest_write() * 3 / 2 - step_ms_ - 4'000 - between(13, key(30), 0, longest_write());
    const bool asks = i == 0 && no_room > 0 && has(withdraw) && has(request) && draw(13, key(31)) % 3 == 0;
    if (asks) gone = std::min(no_room + 2 * step_ms_ + between(13, key(32), 500, 4'000), left);
    if (i == 0) first = {.at = at, .left = left, .gone = gone};
    if (happens(notice, k, i == 2 ? 15 : calm_ ? 80 : 50)) {
      const Ms announced = guessed ? 110'000 : left;
      after(at, [=, this] {
        announce(r,
                 {.source = static_cast<int>(i),
                  .kind = NoticeKind::deadline,
                  .at = steady(now_ + announced),
                  .guessed = guessed,
                  .hibernates = sleeps,
                  .policy = policy_},
                 left, lives, gone);
      });
      if (asks) after(at + no_room, [this] { ask_for_a_save(0); });
      for (std::uint64_t again = 0; again < 2; ++again) {
        const std::uint64_t of = k * 4 + again;
        if (!happens(repeats, of, 60)) continue;
        const Ms later = between(26, of, 50, left + 80'000);
        if (later < gone) {
          after(at + later, [=, this] {
            repeat(r, {.source = static_cast<int>(i), .kind = NoticeKind::deadline, .policy = policy_}, of);
          });
        }
      }
      for (int other = 0; has(callback) && other < world_; ++other) {
        const std::uint64_t of = k * 16 + static_cast<std::uint64_t>(other);
        after(at + between(27, of, 1, 8'000), [=, this] { answer(other, of); });
      }
    }
    if (happens(power, k, 20)) after(between(14, k, 0, horizon), [=, this] { kill(r); });
    if (happens(risk, k, 50)) {
      after(between(28, k, 0, horizon), [=, this] {
        ++requests_;
        give(r, NoticeHeard{.source = 60, .kind = NoticeKind::at_risk});
      });
      after(between(29, k, 0, horizon),
            [=, this] { give(r, NoticeHeard{.source = 61, .kind = NoticeKind::thawed}); });
    }
    if (happens(request, k, 60)) after(between(15, k, 0, horizon), [this, r] { ask_for_a_save(r); });
  }
  const std::uint64_t k = key(7);
  const int r = static_cast<int>(draw(16, k) % static_cast<std::uint64_t>(world_));
  if (happens(stop, k, 50)) {
    after(between(17, k, 0, horizon), [=, this] {
      const bool named = draw(18, k) % 2 != 0;
      const Ms fitting = longest_write() + between(19, k, 0, 5 * step_ms_);  // for one commit, barely
      const Ms grace =
          draw(18, key(6)) % 3 == 0 ? std::max<Ms>(fitting, 2'000) : between(19, k, 2'000, 60'000);
      announce(r,
               {.source = kStopSource,
                .kind = NoticeKind::stop,
                .at = steady(now_ + (named ? grace : 25'000)),
                .guessed = !named},
               grace, draw(20, k) % 2 != 0, kFar);
    });
  }
  if (happens(standby, k, 80)) {
    const Ms ready = between(23, k, 0, horizon);
    after(ready, [this] {
      standby_ = now_;
      standby_seen_ = true;
      give(0, StandbyReady{true});
    });
    if (draw(24, k) % 3 == 0) {  // it dies; the choice that follows an end stands
      after(ready + between(25, k, 0, horizon), [this] {
        standby_ = kFar;
        give(0, StandbyReady{false});
      });
    }
  }
  // Of an end that had passed before the start.
  if (happens(withdraw, k, 20)) {
    after(between(39, k, 0, horizon),
          [this, r] { give(r, NoticeHeard{.source = 40, .kind = NoticeKind::withdrawn}); });
  }
  if (happens(supersede, k, 40)) {
    after(between(21, k, 0, horizon), [=, this] {
      superseded_ = true;
      after(between(22, k, 0, 5'000), [this] {
        heard_newer_ = true;
        give(0, Superseded{});
      });
    });
  }
}

// The program's request_save(), or SIGUSR1.
void SimulatedRun::ask_for_a_save(int r) {
  if (!rank(r).alive || rank(r).exited) return;
  ++requests_;
  requested_at_ = now_;
  requested_step_ = leader().step;
  rank(r).asked_in_evaluation = rank(r).core->evaluating();
  give(r, NoticeHeard{.source = kProgramsRequest, .kind = NoticeKind::checkpoint_now});
  after(time_to_answer() + 2'000, [this, at = now_] {
    // A copy that could not be closed has served it: the save has failed.
    if (!calm_ || has(close_fails) || told_ > 0 || broken_ || requested_at_ != at || leader().exited) return;
    const bool served = !store_.empty() && store_.rbegin()->first >= requested_step_;
    promise(Promise::request_is_served, served, "a save was asked for, and none came");
  });
}

// A stop that is heard at the last step, with time for one commit, barely.
void SimulatedRun::stop_at_the_end() {
  const std::uint64_t k = key(8);
  const Ms grace = longest_write() + between(19, k, 300, 300 + 4 * step_ms_);
  const int r = static_cast<int>(draw(16, k) % static_cast<std::uint64_t>(world_));
  announce(r, {.source = kStopSource, .kind = NoticeKind::stop, .at = steady(now_ + grace)}, grace, true,
           kFar);
}

Ms SimulatedRun::longest_write() const { return write_ms_ * (has(write_limit) ? 3 : 1); }

// A save that is asked for now is durable after this, if no fault delays it.
Ms SimulatedRun::time_to_answer() const {
  return 3 * longest_write() + 12 * step_ms_ + 12'000 + (has(evaluations) ? 12 * tick_ms_ : 0);
}

void SimulatedRun::announce(int r, NoticeHeard notice, Ms left, bool lives, Ms gone) {
  Rank& x = rank(r);
  if (!x.alive || x.exited) return;
  ++told_;
  ++open_ends_;
  if (notice.kind == NoticeKind::stop) stop_told_ = x.stop_told = true;
  if (!notice.hibernates) only_sleeps_ = false;
  any_hibernation_ = any_hibernation_ || notice.hibernates;
  if (notice.guessed) guess_at_ = guess_at_ < 0 ? ms(notice.at) : std::min(guess_at_, ms(notice.at));
  if (trace_) {
    std::printf("%9lld ms  rank %d  source %d: %s%s%s in %lld ms, really in %lld, withdrawn in %lld%s\n",
                static_cast<long long>(now_), r, notice.source,
                notice.kind == NoticeKind::stop ? "stop" : "end", notice.guessed ? " (guessed)" : "",
                notice.hibernates ? " (sleep)" : "", static_cast<long long>(ms(notice.at) - now_),
                static_cast<long long>(left), static_cast<long long>(gone), lives ? ", lives" : "");
  }
  bool named = !notice.guessed;
  for (Announced& before : x.ends) {  // of two stops the earlier end counts, until it has passed
    if (notice.kind != NoticeKind::stop || before.source != notice.source || before.at <= now_) continue;
    (before.at <= ms(notice.at) ? named : before.named) = false;
  }
  x.ends.push_back({.source = notice.source,
                    .at = ms(notice.at),
                    .announced = ms(notice.at),
                    .named = named,
                    .sleeps = notice.hibernates,
                    .told = now_});
  const Ms told_at = now_;
  const int count = told_;
  if (notice.kind == NoticeKind::stop && open_ends_ == 1 && told_ == 1)
    stop_ends_by_ = now_ + time_to_answer();
  check_answer(r, notice, left, gone, lives, told_at);
  give(r, notice);
  if (gone < left) {
    after(gone, [=, this] {
      for (Announced& end : rank(r).ends) {
        if (end.source == notice.source) end.withdrawn = std::min(end.withdrawn, now_);
      }
      --open_ends_;
      give(r, NoticeHeard{.source = notice.source, .kind = NoticeKind::withdrawn});
      // What was asked for while there was no room is saved now.
      if (!calm_ || has(close_fails) || open_ends_ > 0 || stop_told_ || requested_at_ < told_at) return;
      after(time_to_answer() + 2'000 + (world_ > 1 ? 5'000 : 0), [=, this, asked = requested_step_] {
        if (told_ != count || broken_ || leader().exited || leader().in_call == Call::finish) return;
        const bool served = !store_.empty() && store_.rbegin()->first >= asked;
        promise(Promise::request_is_served, served,
                "a save was asked for while there was no room, and none came later");
      });
    });
  } else if (!lives) {
    after(left, [=, this] { kill(r); });
    return;
  }
  if (!notice.hibernates || gone < left) return;
  after(left, [=, this] {
    for (Announced& end : rank(r).ends) {
      if (end.sleeps) end.at = std::min(end.at, now_);
    }
    give(r, MachineWoke{});
  });
}

// A source tells of its end again: sooner, later, by name, or as a sleep.
void SimulatedRun::repeat(int r, NoticeHeard notice, std::uint64_t k) {
  Rank& x = rank(r);
  if (!x.alive || x.exited) return;
  const auto of_it = [&](const Announced& end) { return end.source == notice.source; };
  const auto known = std::find_if(x.ends.rbegin(), x.ends.rend(), of_it);
  const bool stands = std::any_of(x.ends.begin(), x.ends.end(),
                                  [&](const Announced& end) { return of_it(end) && end.announced > now_; });
  if (known != x.ends.rend() && !stands && draw(37, k) % 4 == 0) {  // what has passed
    notice.at = steady(known->announced);
    notice.guessed = !known->named;
    notice.hibernates = known->sleeps;
    return give(r, notice);
  }
  const Ms left = between(31, k, 1'000, 200'000);
  notice.at = steady(now_ + left);
  notice.guessed = draw(32, k) % 3 == 0;
  notice.hibernates = has(hibernate) && draw(33, k) % 3 == 0;
  ++told_;
  only_sleeps_ = only_sleeps_ && notice.hibernates;
  any_hibernation_ = any_hibernation_ || notice.hibernates;
  tell("hears again of an end in ms", r, left);
  Announced news{.source = notice.source,
                 .at = now_ + left,
                 .announced = now_ + left,
                 .named = !notice.guessed,
                 .sleeps = notice.hibernates,
                 .told = now_};
  for (Announced& before : x.ends) {
    if (before.source != notice.source || before.withdrawn <= now_) continue;
    const bool passed = before.at <= now_;
    const bool counts = before.named == news.named ? news.at < before.at : news.named;
    if (!passed) news.sleeps = before.sleeps = before.sleeps && news.sleeps;
    // A source repeats the sleep from which the machine has woken.
    const bool repeated = passed && before.sleeps && news.sleeps && news.at <= before.announced;
    (!repeated && (passed || counts) ? before : news).withdrawn = now_;
  }
  x.ends.push_back(news);
  give(r, notice);
}

// The program's callback decides what to do about the end that stands.
void SimulatedRun::answer(int r, std::uint64_t k) {
  const Rank& x = rank(r);
  if (!x.alive || x.exited) return;
  const run::RunEnds::End* const end = x.core->ends().standing();
  if (end == nullptr) return;
  constexpr OnNotice kAnswers[] = {OnNotice::train_on, OnNotice::wait, OnNotice::exit};
  if (r != 0 && end->source < 0) return;  // rank 0 decides for all
  const NoticeAnswered answer{.source = end->source, .seen = end->seen, .policy = kAnswers[draw(34, k) % 3]};
  after(draw(35, k) % 2 == 0 ? 0 : between(36, k, 1, 30'000), [=, this] { give(r, answer); });
}

// Only where this is the only notice, and no fault of the disk or the network delays the answer.
void SimulatedRun::check_answer(int r, const NoticeHeard& notice, Ms left, Ms gone, bool lives, Ms told_at) {
  const bool only = open_ends_ == 1 && !(stop_told_ && notice.kind != NoticeKind::stop);
  const int count = told_;
  const Step reached = leader().step;
  const Ms need = time_to_answer();
  const auto stands = [=, this] { return calm_ && only && told_ == count && !broken_; };
  const bool hands_over = standby_ <= now_ && notice.kind == NoticeKind::deadline && !notice.hibernates &&
                          gone > need && left > need && only && told_ == 1;
  if (hands_over) handed_over_by_ = now_ + need;
  if (gone > need && left > need) {
    after(need + 1, [=, this] {
      if (!stands()) return;
      const bool answered = !store_.empty() && store_.rbegin()->first >= reached;
      promise(Promise::notice_is_answered, answered,
              "there was time, and nothing newer than the notice is durable");
      if (notice.kind == NoticeKind::stop)
        promise(Promise::stop_ends_in_time, leader().exited, "told to stop, and still running");
      if (hands_over && standby_ <= now_) {
        promise(Promise::standby_gets_the_run, leader().exited, "a standby is ready, and still waits");
      }
    });
  }
  const bool paused_at_end = !lives && gone > left && notice.kind == NoticeKind::deadline && !notice.guessed;
  if (paused_at_end && has(mirror) && left > need + 4 * home_ms_ + 10'000) {
    after(left - 1, [=, this] {
      const bool measured = leader().core->costs().home.has_value();
      if (!stands() || !measured || leader().in_call != Call::step || !leader().pausing || said_not_home_)
        return;
      promise(Promise::last_step_is_home, home_ >= leader().step,
              "the run paused, and its last step is not home in time");
    });
  }
  if (notice.kind != NoticeKind::deadline || (gone > left && !lives)) return;
  const Ms free = (gone < left ? gone : std::max(left, ms(notice.at) - now_) + 61'000) + 15'000;
  after(free, [=, this] {
    if (gone >= left) --open_ends_;
    const Rank& x = rank(r);
    if (!stands() || !x.alive || x.exited) return;
    const bool stands_still = x.in_call == Call::step && x.call_since < told_at + free - 15'000;
    promise(Promise::run_goes_on, !stands_still,
            "the end is announced no more, and the training still stands");
  });
}

void SimulatedRun::kill(int r) {
  Rank& x = rank(r);
  if (!x.alive) return;
  tell("is killed at step", r, x.step);
  if (r == 0 && real_ && !x.exited) real_->die(in_flight());
  x.alive = false;
  broken_ = true;
  for (int other = 0; other < world_; ++other) {
    if (other == r) continue;
    after(8'000, [this, other] { lose(other); });
    // A share waits for rank 0 no longer than that.
    if (r == 0) after(longest_wait_, [this, other] { write_ended(other, Outcome::overtaken); });
  }
  check_over();
}

// Another rank is gone. Either this one waits for it in a call, or the program's own exchange with it fails.
void SimulatedRun::lose(int r) {
  Rank& x = rank(r);
  if (!x.alive || x.exited || x.lost) return;
  x.doomed = true;
  find_loss(r);
  after(60'000, [this, r] {
    Rank& y = rank(r);
    if (!y.alive || y.exited || y.lost) return;
    y.in_call == Call::none ? kill(r) : lose(r);
  });
}

void SimulatedRun::check_over() {
  for (const Rank& x : ranks_) {
    if (x.alive && !x.exited) return;
  }
  complete_ = last_code_ == 0 || last_code_ == 70;
  if (!complete_) after(5'000, [this] { start_attempt(); });
}

}  // namespace holdfast::simulation
