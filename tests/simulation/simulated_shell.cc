// What the shell does with actions, and the promises that are checked there.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "simulated_run.h"

namespace holdfast::simulation {

using namespace run;

void SimulatedRun::give(int r, const Event& event) {
  Rank& x = rank(r);
  if (!x.alive) return;
  if (x.exited) {
    const bool nothing = x.core->on(event, steady(now_)).empty();
    return promise(Promise::end_is_the_end, nothing, "an action after the end");
  }
  x.heard.push_back(event);
  if (x.performing) return;  // on_save called back
  x.performing = true;
  while (!x.heard.empty() && !x.exited) {
    const Event next = x.heard.front();
    x.heard.pop_front();
    ++counted.events;
    x.quiet = {};
    tell("event", r, static_cast<std::int64_t>(next.index()));
    x.core->know(known_of(r));
    for (const Action& action : x.core->on(next, steady(now_))) {
      tell("  action", r, static_cast<std::int64_t>(action.index()));
      ++x.acted;
      std::visit([&](const auto& what) { perform(r, what); }, action);
    }
  }
  x.performing = false;
  check_pressure(r);
  if (x.doomed) find_loss(r);
  if (r != 0 && x.in_call != Call::none) wait_enough(r);
}

Known SimulatedRun::known_of(int r) const {
  const Rank& x = ranks_[static_cast<std::size_t>(r)];
  if (r != 0 || !has(mirror)) return {.costs = x.costs};
  return {.costs = x.costs, .going_home = going_home(false), .newer_going_home = going_home(true)};
}

// As SaveBook::going_home().
Duration SimulatedRun::going_home(bool and_newer) const {
  const bool no_news = home_ < 0 && going_home_ < 0;
  if (no_news || store_.empty() || home_ >= store_.rbegin()->first) return {};
  static_cast<void>(and_newer);  // counts while a mirror fails
  const Duration took = ranks_[0].costs.home.value_or(Duration::zero());
  const Duration left = std::max(steady(last_commit_) + took - steady(now_), Duration::zero());
  return going_home_ >= 0 && going_home_ < store_.rbegin()->first ? left + took : left;
}

// The image.

void SimulatedRun::perform(int r, const Stage& action) {
  Rank& x = rank(r);
  promise(Promise::one_image, x.images.size() < (has(two_images) && r == 0 ? 2U : 1U),
          "one image of the state too many");
  const bool by_device = action.copy == run::Copy::by_device;
  const std::uint64_t k = key(static_cast<std::uint64_t>(action.image)) + static_cast<std::uint64_t>(r);
  Image& image = x.images[action.image];
  image = {.copy = action.copy, .step = action.step, .content = x.live};
  if (action.for_save) {
    x.open.emplace(action.image, action.step);
    if (r == 0) {
      check_allowed();
      ++x.saves_begun;
      last_begun_ = now_;
      last_tried_ = last_tried_ || x.in_call == Call::finish;
      if (x.pausing && !x.core->leaving() && x.staged_at.count(action.step) > 0) {
        promise(Promise::last_save_waits_after_a_failure, now_ - x.staged_at[action.step] >= 1'900,
                "a failed last save is repeated at once");
      }
      x.staged_at[action.step] = now_;
    }
  }
  const bool ok = !(faulty() && happens(stage_fails, k, 8));
  const Ms took = action.copy == run::Copy::whole ? between(50, k, 1, 200)
                  : by_device                     ? between(50, k, 0, 20)
                                                  : 0;
  if (action.for_save && r == 0 && ok) stalls_.push_back(took);
  image.part = action.for_save && world_ > 1 && !x.alone;
  image.copied = took;
  const bool closed = action.copy == run::Copy::beside_step && happens(Fault::closed, k, 20);
  if (closed) image.copy = run::Copy::whole;
  x.staging = true;
  after(took, [=, this, part = image.part] {
    rank(r).staging = false;
    rank(r).images[action.image].complete = true;
    give(r, Staged{.image = action.image, .ok = ok, .part = part, .closed = closed});
  });
  if (!ok && r == 0) ++x.failing;
}

// No save begins that cannot end before a deadline that somebody named to rank 0.
void SimulatedRun::check_allowed() {
  const Rank& x = leader();
  const bool by_itself = x.in_call == Call::finish && x.core->ended_by_itself();
  const bool asked = x.in_call == Call::save || x.in_call == Call::best || x.in_call == Call::evaluation_end;
  if (measured_times_.empty() || measured_times_.size() > 19 || store_.empty() || by_itself || asked) return;
  const Ms cost = *std::max_element(measured_times_.begin(), measured_times_.end());
  for (const Announced& end : x.ends) {
    if (!end.named || end.withdrawn <= now_ || end.at <= now_) continue;
    promise(Promise::named_end_forbids, now_ + cost <= end.at,
            "a save began that cannot end before a named deadline");
  }
}

void SimulatedRun::perform(int r, const CloseCopy& action) {
  Rank& x = rank(r);
  Image& image = x.images[action.image];
  const bool failed = faulty() && happens(close_fails, key(static_cast<std::uint64_t>(action.image)), 10);
  const bool intact = x.live == image.content && !failed;
  // What the copy's thread found of memory that has changed.
  if (draw(51, key(static_cast<std::uint64_t>(action.image))) % 2 != 0) image.content = x.live;
  image.copy = run::Copy::whole;
  x.staging = true;
  after(0, [=, this] {
    rank(r).staging = false;
    give(r, CopyClosed{action.image, intact, failed});
  });
}

void SimulatedRun::perform(int r, const FreeImage& action) {
  auto& images = rank(r).images;
  const auto freed = images.find(action.image);
  const bool read = rank(r).writing && rank(r).write_image == action.image;
  promise(Promise::image_is_free, freed != images.end() && !read && freed->second.complete,
          "an image was freed that is in use");
  images.erase(freed);
}

// The disk.

void SimulatedRun::perform(int r, const Write& action) {
  Rank& x = rank(r);
  if (r == 0) {
    promise(Promise::superseded_writes_nothing, !heard_newer_, "a superseded attempt writes");
    last_tried_ = last_tried_ || x.in_call == Call::finish;
    x.written_at[action.step] = now_;
  }
  promise(Promise::one_write, !x.writing && !(r == 0 && disk_.busy), "a second write in flight");
  const auto own = x.images.find(action.image);
  const bool whole = own != x.images.end() && own->second.step == action.step && own->second.complete;
  promise(Promise::write_has_its_image, whole, "a write without its whole image");
  Image& image = own->second;
  if (image.copy == run::Copy::beside_step) image.content = x.live;  // never closed: the copy runs on
  x.open.emplace(action.save, action.step);
  x.writing = true;
  x.write_id = action.save;
  x.write_image = action.image;
  x.write_step = action.step;
  x.write_round = action.round;
  shares_[action.step][r] = image.content;
  if (r != 0) {
    const auto ended = ended_.find(action.round);
    if (declined_.count(action.round) > 0) {
      after(1, [=, this] { write_ended(r, Outcome::overtaken); });
    } else if (ended != ended_.end()) {
      after(1, [=, this, outcome = ended->second] { write_ended(r, outcome); });
    }
    return;
  }
  if (image.part && ended_.count(action.round) > 0) {  // the others do not take part a second time
    return after(1, [=, this] { write_ended(0, Outcome::failed); });
  }
  const std::uint64_t k = key(static_cast<std::uint64_t>(action.save) + 77);
  Ms lasts = between(52, k, write_ms_ * 8 / 10, write_ms_);
  if (faulty() && happens(slow, k, 30)) lasts *= between(53, k, 2, 8);
  if (faulty() && happens(hang, k, 10)) lasts += between(54, k, 60'000, 1'500'000);
  disk_ = {.busy = true,
           .step = action.step,
           .round = action.round,
           .bad = faulty() && happens(fail, k, 25),
           .measured = !(has(write_limit) && x.limited) && !(world_ > 1 && !x.alone && action.round < 0),
           .began = now_,
           .rest = lasts,
           .since = now_,
           .patience = -1,
           .timer = disk_.timer};
  write_goes_on();
}

// Under the limit a write takes three times as long.
void SimulatedRun::write_goes_on() {
  const bool limited = has(write_limit) && leader().limited;
  disk_.since = now_;
  after(disk_.rest * (limited ? 3 : 1), [this, timer = ++disk_.timer] {
    if (disk_.busy && disk_.timer == timer) write_done();
  });
}

void SimulatedRun::perform(int r, const LimitWrites& action) {
  Rank& x = rank(r);
  const bool was = std::exchange(x.limited, action.so);
  if (r != 0 || !disk_.busy || disk_.patience >= 0 || was == action.so || !leader().writing) return;
  disk_.rest = std::max<Ms>(disk_.rest - (now_ - disk_.since) / (has(write_limit) && was ? 3 : 1), 0);
  write_goes_on();
}

void SimulatedRun::write_done() {
  if (!leader().alive) return;
  if (disk_.patience < 0) disk_.patience = now_ + 10'000;
  const bool refused = refused_.count(disk_.round) > 0 && disk_.round >= 0;
  const bool lacks = static_cast<int>(shares_[disk_.step].size()) < world_;
  if (!disk_.bad && !superseded_ && lacks && !refused && now_ < disk_.patience) {
    return after(50, [this, timer = disk_.timer] {
      if (disk_.busy && disk_.timer == timer) write_done();
    });
  }
  Outcome outcome = superseded_                     ? Outcome::superseded
                    : disk_.bad || lacks || refused ? Outcome::failed
                                                    : Outcome::durable;
  if (real_ && !lacks && !refused) outcome = real_->write(image_of(disk_.step), disk_.bad, superseded_);
  if (outcome == Outcome::durable) commit(disk_.step);
  // A rank gives up its part when an end has come that somebody named to it.
  if (calm_ && !broken_ && !named_end_within(1)) {
    promise(Promise::undisturbed_saves_succeed, outcome == Outcome::durable,
            "a save failed, and no disk did");
  }
  ended_[disk_.round] = outcome;
  const Step step = disk_.step;
  write_ended(0, outcome);
  for (int r = 1; r < world_; ++r) {
    if (!rank(r).writing || rank(r).write_step != step) continue;
    after(between(55, key(static_cast<std::uint64_t>(now_)) + static_cast<std::uint64_t>(r), 1, 600),
          [=, this] { write_ended(r, outcome); });
  }
}

void SimulatedRun::commit(Step step) {
  for (int r = 0; r < world_; ++r) {
    const bool right = shares_[step].at(r) == rank(r).truth[static_cast<std::size_t>(step)];
    promise(Promise::checkpoint_is_a_boundary, right, "a committed image holds no step boundary");
  }
  store_[step] = now_;
  ++counted.commits;
  last_commit_ = now_;
  write_times_.push_back(now_ - disk_.began);
  if (disk_.measured) {
    const Ms copied = leader().images[leader().write_image].copied;
    leader().measured->committed(std::chrono::milliseconds(copied + now_ - disk_.began));
    measured_times_.push_back(now_ - disk_.began);
    measure(0);
  }
  tell("commits step", 0, step);
  if (has(mirror) && going_home_ < 0) go_home();
}

RealStore::Image SimulatedRun::image_of(Step step) const {
  RealStore::Image image{.step = step, .content = {}};
  for (const auto& [r, content] : shares_.at(step)) image.content.push_back(content);
  return image;
}

// What a crash now leaves in part; nullopt: nothing that could get a checkpoint's name.
std::optional<RealStore::Image> SimulatedRun::in_flight() {
  const bool whole = disk_.busy && leader().writing && static_cast<int>(shares_[disk_.step].size()) == world_;
  if (!whole || disk_.bad || superseded_ || refused_.count(disk_.round) > 0) return std::nullopt;
  return image_of(disk_.step);
}

// A start finds what the last attempt was told is durable, or a commit that nobody was told of.
void SimulatedRun::ask_the_store() {
  const auto found = real_->start(faulty());
  const Step step = found ? found->step : -1;
  store_.erase(store_.upper_bound(step), store_.end());  // a file was damaged
  acknowledged_ = std::min(acknowledged_, step);
  if (!found) return;
  store_[step] = now_;
  for (int r = 0; r < world_; ++r) {
    const bool right =
        found->content[static_cast<std::size_t>(r)] == rank(r).truth[static_cast<std::size_t>(step)];
    promise(Promise::checkpoint_is_a_boundary, right, "what a start reads is no step boundary");
  }
}

// The mirror copies the newest checkpoint, one at a time.
void SimulatedRun::go_home() {
  going_home_ = store_.rbegin()->first;
  after(home_ms_, [this] {
    home_ = std::exchange(going_home_, -1);
    leader().measured->home_takes(std::chrono::milliseconds(home_ms_));
    measure(0);
    if (store_.rbegin()->first > home_) go_home();
  });
}

void SimulatedRun::write_ended(int r, Outcome outcome) {
  Rank& x = rank(r);
  if (!x.writing || !x.alive) return;
  x.writing = false;
  const Step step = x.write_step;
  if (outcome == Outcome::failed) ++x.failures[step];
  x.failing = outcome == Outcome::failed ? x.failing + 1 : 0;
  const bool alone = r == 0 && world_ == 1 && x.step == step && x.whole_evaluation && x.core->evaluating();
  if (alone && outcome == Outcome::failed && !superseded_) {
    // The image of the evaluation stands in for the save that failed, if anybody asked for it.
    const Ms again = 2'100 + (has(slow_tidy) ? 20'100 : 100);
    after(again, [=, this, at = now_, calls = x.evaluations] {
      const Rank& y = rank(r);
      const bool pressed = std::any_of(y.ends.begin(), y.ends.end(), [&](const Announced& end) {
        return end.withdrawn == kFar && end.at > now_ && end.told <= at;
      });
      const Ms cost = ms(y.core->costs().commit.value_or(Duration::zero()));
      const bool forbidden = std::any_of(y.ends.begin(), y.ends.end(), [&](const Announced& end) {
        return end.named && end.withdrawn > at && end.at > at && end.at < now_ + 2 * cost + 3'000;
      });
      const bool asked = pressed || y.asked_in_evaluation;
      if (!y.alive || y.exited || y.step != step || !y.core->evaluating() || y.evaluations != calls) return;
      if (!asked || forbidden || superseded_) return;
      const auto written = y.written_at.find(step);
      promise(Promise::evaluation_tries_again, written != y.written_at.end() && written->second > at,
              "a save that failed in an evaluation was not tried again");
    });
  }
  give(r, SaveEnded{x.write_id, outcome});
  const Ms tidy = r != 0           ? 0
                  : has(slow_tidy) ? between(56, key(static_cast<std::uint64_t>(now_)), 500, 20'000)
                                   : 10;
  after(tidy, [=, this] {
    if (r == 0) disk_.busy = false;
    give(r, WriterIdle{});
  });
}

void SimulatedRun::perform(int r, const Decline& action) {
  if (rank(r).alone) return;
  if (r != 0) {
    refused_.insert(action.round);
    return;
  }
  declined_.insert(action.round);
  for (int other = 1; other < world_; ++other) {
    if (!rank(other).writing || rank(other).write_round != action.round) continue;
    after(2, [=, this] { write_ended(other, Outcome::overtaken); });
  }
}

void SimulatedRun::perform(int r, const SendShare& action) {
  shares_[action.step][r] = rank(r).live;
  ++sent_[{action.step, rank(r).boundary}];
}

void SimulatedRun::perform(int r, const CallForHelp& /*action*/) { rank(r).calls = true; }

// What a rank has of its own goes to rank 0.
void SimulatedRun::tell_own(int r) {
  const Rank& x = rank(r);
  shares_[x.step][r] = x.kept == x.step ? x.truth[static_cast<std::size_t>(x.step)] : x.live;
}

void SimulatedRun::perform(int r, const SendOwn& /*action*/) { tell_own(r); }

// Another thread of rank 0 looks about once a second in an evaluation.
void SimulatedRun::look(int evaluation) {
  Rank& x = leader();
  if (!x.alive || x.exited || !x.core->evaluating() || x.evaluations != evaluation) return;
  const bool called =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& other) { return other.calls; });
  if (called) give(0, HelpCalled{});
  const auto sent = sent_.find({x.step, x.boundary});
  const auto kept = std::find_if(x.images.begin(), x.images.end(), [&](const auto& image) {
    return image.second.step == x.step && image.second.complete && !image.second.part &&
           image.second.copy == run::Copy::whole;
  });
  if (sent != sent_.end() && sent->second == world_ - 1 && kept != x.images.end() && !x.writing) {
    after(between(63, key(static_cast<std::uint64_t>(now_)), 0, 30),
          [this, here = SharesHere{x.step, kept->first}] { give(0, here); });
  }
  after(1'000, [this, evaluation] { look(evaluation); });
}

void SimulatedRun::perform(int r, const Settle& action) {
  Rank& x = rank(r);
  x.open.erase(action.save);
  promise(Promise::settled_once, x.settled.insert(action.save).second, "a save was settled twice");
  if (action.outcome == Outcome::durable) {
    promise(Promise::acknowledged_is_durable, store_.count(action.step) > 0,
            "a step was acknowledged and is not durable");
    acknowledged_ = std::max(acknowledged_, action.step);
  }
  if (action.outcome == Outcome::overtaken) ++requests_;  // it is made again
  if (!happens(on_save, key(static_cast<std::uint64_t>(action.save) + 200), 10)) return;
  // The program's on_save calls request_save() or request_stop().
  if (draw(59, key(static_cast<std::uint64_t>(action.save))) % 8 != 0) {
    ++requests_;
    return give(r, NoticeHeard{.source = 98, .kind = NoticeKind::checkpoint_now});
  }
  ++told_;
  stop_told_ = x.stop_told = true;
  only_sleeps_ = false;
  ++open_ends_;
  give(r, NoticeHeard{.source = 98, .kind = NoticeKind::stop, .at = kNever, .guessed = true});
}

// Votes and calls.

void SimulatedRun::perform(int r, const PostVote& action) {
  Rank& x = rank(r);
  if (world_ == 1) return after(0, [=, this] { give(r, VoteResult{action.vote}); });
  const int round = x.posted++;
  const bool at_end = x.in_call == Call::finish;
  Vote own = action.vote;
  // Not all ranks see the volume, the others' saves have failed, or rank 0 has an image of the boundary.
  const bool never = draw(61, 0) % 2 == 0;
  own.alone = has(alone) && (never || static_cast<std::uint64_t>(round) > draw(61, key(1)) % 40);
  if (r == 0 && at_end && x.core->holds_image()) own.alone = true;
  x.voting = true;
  x.calls = r != 0 && x.core->ends().pending();
  Vote& ballot = ballots_[round];
  ballot = voters_[round]++ == 0 ? own : merged(ballot, own);
  if (voters_[round] < world_) return;
  promise(Promise::votes_at_one_step, ballot.lowest == ballot.highest, "ranks voted at different steps");
  const std::uint64_t k = key(static_cast<std::uint64_t>(round) + 5000);
  if (faulty() && happens(vote_lost, k, 2)) {
    broken_ = true;
    for (int other = 0; other < world_; ++other) after(10'000, [this, other] { lose(other); });
    return;
  }
  for (int other = 0; other < world_; ++other) {
    const Ms delay = between(60, k + static_cast<std::uint64_t>(other), 1,
                             faulty() && happens(vote_late, k, 20) ? 6'000 : 6);
    after(delay, [=, this] {
      Rank& y = rank(other);
      y.voting = false;
      y.alone = ballot.alone;
      if (other != 0 && at_end && ballot.torn < 0 && y.in_call == Call::finish) tell_own(other);
      give(other, VoteResult{ballot});
    });
  }
}

void SimulatedRun::perform(int r, const Return& action) {
  Rank& x = rank(r);
  promise(Promise::calls_return, x.in_call == action.call, "a call returned that nobody made");
  x.in_call = Call::none;
  x.pausing = x.pausing && action.call != Call::step;
  const bool hands_over = r == 0 && x.core->hands_over();
  if (hands_over)
    promise(Promise::standby_gets_the_run, standby_seen_, "handed over, and no standby is ready");
  if (action.call == Call::evaluation_begin) {
    ++x.evaluations;
    x.asked_in_evaluation = false;
    x.whole_evaluation = x.live == x.truth[static_cast<std::size_t>(x.step)];
    if (r == 0 && world_ > 1) {
      after(between(62, key(static_cast<std::uint64_t>(x.evaluations)), 1, 1'000),
            [this, evaluation = x.evaluations] { look(evaluation); });
    }
  }
  if (action.call == Call::step) {
    auto& told = saved_[x.step];
    (action.saved ? told.first : told.second) = true;
    promise(Promise::ranks_tell_the_same, !(told.first && told.second) || broken_,
            "Decision::saved differs between ranks");
  }
  // It may wait for another write, and then nobody was asked for anything yet.
  if (action.save != 0 && x.settled.count(action.save) == 0) x.open.emplace(action.save, x.step);
  const bool measured =
      action.call == Call::evaluation_end && x.best_measured && calm_ && told_ == 0 && world_ == 1;
  if (measured && x.live == x.truth[static_cast<std::size_t>(x.step)]) {
    const bool open =
        std::any_of(x.open.begin(), x.open.end(), [&](const auto& save) { return save.second == x.step; });
    promise(Promise::best_is_saved, open || store_.count(x.step) > 0, "the best value's step is not saved");
  }
  after(0, [=, this] {
    if (rank(r).alive && !rank(r).exited && !rank(r).lost) next(r, action.call, action.stop);
  });
}

void SimulatedRun::perform(int r, const run::Quiet& action) { rank(r).quiet = action; }

void SimulatedRun::perform(int r, const WakeAt& action) {
  rank(r).wake = ms(action.at);
  if (action.at == kNever) return;
  after(std::max<Ms>(rank(r).wake - now_, 0), [=, this, at = rank(r).wake] {
    if (rank(r).wake == at) give(r, TimeReached{});
  });
}

void SimulatedRun::perform(int r, const LetMachineGo& action) {
  rank(r).approved = action.so;
  const bool durable = !store_.empty() && store_.rbegin()->first >= rank(r).step;
  promise(Promise::approved_is_durable, !action.so || durable,
          "the machine may end, and the step is not durable");
}

void SimulatedRun::perform(int /*r*/, const TellOutcome& action) {
  for (int other = 1; other < world_; ++other) {
    after(5, [=, this] {
      Rank& x = rank(other);
      x.outcome = OutcomeTold{action.code, action.durable};
      if (std::exchange(x.awaits_outcome, false)) give(other, *x.outcome);
    });
  }
}

void SimulatedRun::perform(int r, const AwaitOutcome& /*action*/) {
  Rank& x = rank(r);
  x.awaits_outcome = !x.outcome;
  if (x.outcome) after(0, [this, r] { give(r, *rank(r).outcome); });
}

// Of a rank that is lost there is no answer.
void SimulatedRun::perform(int /*r*/, const AskOthers& /*action*/) {
  after(5, [this] {
    const bool told =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& x) { return x.core->told_to_stop(); });
    give(0, OthersAnswered{told});
  });
}

// A lost rank is found where the training thread waits for it.
bool SimulatedRun::waits_for_a_vote(const Rank& x) const {
  return x.voting && (x.in_call == Call::step || x.in_call == Call::finish);
}

void SimulatedRun::find_loss(int r) {
  Rank& x = rank(r);
  const bool waits = (waits_for_a_vote(x) && !x.staging) || x.awaits_outcome;
  if (!x.alive || x.exited || !waits) return;
  x.doomed = false;
  x.awaits_outcome = false;
  after(0, [this, r] { leave_in_error(r, 75); });
}

void SimulatedRun::leave_in_error(int r, int code) {
  Rank& x = rank(r);
  if (!x.alive || x.exited || x.lost) return;
  x.lost = true;
  const Duration within = r == 0 ? Duration::max() : Duration(std::chrono::seconds(10));
  x.in_call = Call::finish;
  give(r, RankLost{.code = code, .within = within});
}

// Others count a rank as lost that waits for its own disk for longer.
void SimulatedRun::wait_enough(int r) {
  const Rank& x = rank(r);
  if (x.awaits_outcome || waits_for_a_vote(x)) return;
  after(faulty() ? longest_wait_ : kLongestWait, [this, r, acted = x.acted] {
    if (rank(r).acted == acted && !rank(r).exited) give(r, WaitedEnough{});
  });
}

// While an end stands or a stop was told, nobody limits writes.
void SimulatedRun::check_pressure(int r) {
  const Rank& x = rank(r);
  if (x.exited) return;
  bool stands = x.stop_told;
  bool gone = !x.ends.empty();
  for (const Announced& end : x.ends) {
    stands = stands || (end.withdrawn > now_ && end.at > now_);
    gone = gone && end.withdrawn <= now_;
  }
  if (stands) promise(Promise::limit_is_lifted, !x.limited, "an end is near, and writes are limited");
  if (!gone || world_ > 1 || stop_told_ || superseded_ || broken_ || x.lost || x.core->leaving()) return;
  promise(Promise::limit_is_restored, x.limited, "no end stands, and writes are not limited");
}

// The end.

void SimulatedRun::perform(int r, const Exit& action) {
  Rank& x = rank(r);
  tell("exits with", r, action.code);
  promise(Promise::saves_are_settled, x.open.empty(), "a save was never settled");
  check_exit(r, action.code);
  if (r == 0 && real_) {
    real_->end(action.code, x.step);
    real_->die(in_flight());
  }
  x.exited = true;
  if (r == 0 || last_code_ < 0) last_code_ = action.code;
  check_over();
}

void SimulatedRun::check_exit(int r, int code) {
  Rank& x = rank(r);
  const Step newest = store_.empty() ? -1 : store_.rbegin()->first;
  const bool told_an_end = told_ > 0 && !only_sleeps_;
  const auto failing = [this](Fault fault) { return has(fault); };
  if (code == 0) {
    const bool right = newest >= x.step && (x.step >= last_ || torn_called_ || has(evaluation_throws)) &&
                       !(superseded_ && last_commit_ < began_);
    promise(Promise::code_0_is_complete, right, "exit code 0, and the run is not complete and durable");
  }
  const bool waited = r != 0 && now_ - x.call_since >= 3'600'000;  // for rank 0's outcome
  if (code == 75)
    promise(Promise::code_75_was_told, told_an_end || broken_ || waited,
            "exit code 75, and nobody told the run to stop");
  if (code == 76)
    promise(Promise::code_76_has_a_newer_attempt, superseded_, "exit code 76 without a newer attempt");
  if (code == 70)
    promise(Promise::code_70_is_a_defect, torn_called_ || no_step_ || has(evaluation_throws),
            "exit code 70, and the program did all right");
  if (r != 0) return;
  if (calm_ && stop_ends_by_ >= 0 && told_ == 1) {
    promise(Promise::stop_ends_in_time, now_ <= stop_ends_by_, "the run was told to stop, and ended late");
  }
  if (calm_ && handed_over_by_ < kFar && told_ == 1 && standby_ < kFar) {
    promise(Promise::standby_gets_the_run, now_ <= handed_over_by_, "a standby was ready, and waited");
  }
  if (gave_up_ && !x.lost && code == 75) {
    promise(Promise::giving_up_is_a_failure, newest >= x.step || x.failing == 0,
            "the run gave up because no save succeeds, and ends with 75");
  }
  if (code == 74) {
    const bool disk = failing(fail) || failing(hang) || failing(slow) || failing(stage_fails) ||
                      longest_wait_ < kLongestWait;
    const bool tried = x.failures[x.step] >= 1;
    promise(Promise::code_74_had_a_failure, disk || (told_an_end && newest < 0),
            "exit code 74, and no disk failed");
    const bool once = !told_an_end && !broken_ && !failing(stage_fails) && x.failures[x.step] < 2;
    promise(Promise::code_74_tried_twice, !once,
            tried ? "exit code 74 after a single try" : "exit code 74 without a try");
  }
  if (x.writing && !broken_) {
    Ms first = kFar;
    bool own_named = false;
    bool others_named = false;
    for (int other = 0; other < world_; ++other) {
      for (const Announced& end : rank(other).ends) {
        if (end.sleeps) continue;
        first = std::min(first, end.at);
        (other == 0 ? own_named : others_named) |= end.named;
      }
    }
    if (!own_named) {
      // What a late vote tells of an end, rank 0 counts from its own vote.
      promise(others_named ? Promise::end_of_others_ends_no_wait : Promise::guess_ends_no_wait,
              first == kFar ? stop_told_ : now_ >= std::min(first, finish_at_) + 290'000,
              "a write was given up, and no named end has come");
    }
  }
  if (code == 75 && calm_ && newest < x.step && !last_tried_ && x.in_call == Call::finish && !broken_) {
    const auto cost = x.core->costs().commit;
    Ms left = kFar;
    for (const Rank& other : ranks_) {  // a rank that waits here for the others has voted before
      const Ms voted = other.in_call == Call::finish ? other.call_since : finish_at_;
      for (const Announced& end : other.ends) {
        if (end.named && end.withdrawn > voted && end.at > voted) left = std::min(left, end.at - voted);
      }
    }
    if (!busy_at_finish_ && cost && !said_torn_) {
      promise(Promise::last_save_is_not_left_out, left <= ms(*cost) + 300,
              "the last save was left out, and there was time");
    }
  }
  const bool counts = every_ == 500 && every_ms_ == 0 && !has(automatic) && told_ == 0 && !broken_ &&
                      !failing(stage_fails) && !failing(fail) && !failing(spoil);
  if (counts) {
    promise(Promise::request_is_served_once, x.saves_begun <= requests_ + 3,
            "more saves than anybody asked for");
  }
}

// Somebody named an end within that time, to any rank. Rank 0 may hear a minute later that it is withdrawn.
bool SimulatedRun::named_end_within(Ms within) const {
  const bool long_evaluations = has(evaluations) && (has(long_step) || has(hang));
  const Ms later = 60'000 + (long_evaluations ? 400'000 : 0);
  for (const Rank& x : ranks_) {
    for (const Announced& end : x.ends) {
      const bool stands =
          policy_ == OnNotice::exit || has(standby) || has(callback) || now_ < end.withdrawn + later;
      if (end.named && stands && end.at - now_ < within) return true;
    }
  }
  return false;
}

void SimulatedRun::perform(int r, const Say& action) {
  counted.remarks |= 1ULL << static_cast<unsigned>(action.what);
  tell("says", r, static_cast<std::int64_t>(action.what));
  if (action.what == Remark::pausing) {
    rank(r).pausing = true;
    promise(Promise::sleep_pauses_nothing, !only_sleeps_, "the run pauses for a machine that will wake up");
  }
  if (action.what == Remark::going_on) rank(r).pausing = false;
  if (action.what == Remark::not_home) said_not_home_ = true;
  if (action.what == Remark::torn) said_torn_ = true;
  if (action.what != Remark::too_late) return;
  const Ms cost = ms(leader().core->costs().commit.value_or(Duration::zero()));
  const Ms age = leader().writing ? now_ - disk_.began : 0;
  const Ms within = 2 * std::max(cost, age) + ms(leader().core->costs().step) + 10'000;
  promise(Promise::too_late_has_a_named_end, named_end_within(within),
          "too late for a save, and no named end is near");
}

}  // namespace holdfast::simulation
