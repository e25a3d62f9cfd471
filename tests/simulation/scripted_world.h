// One or several RunCores whose clock, disk, votes and news a test scripts. Votes are answered at once, and a
// save of several ranks needs no shares: the interleavings are the simulation's work.
//
//   ScriptedWorld world({.every = {SaveEvery::steps(10)}}, 2);
//   world.write = 20s;
//   world.step();                                    // all ranks, until after_step() has returned on each
//   world.give(1, NoticeHeard{.at = world.now + 15s});
//
// Errors: a gtest failure if a call never returns. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/planning/run_core.h"

namespace holdfast::simulation {

class ScriptedWorld {
 public:
  struct Rank {
    std::optional<run::RunCore> core;
    std::vector<SteadyTime> begun;  // saves: when their copy was asked for
    std::vector<run::Step> written;
    std::vector<run::Settle> settled;
    std::vector<run::Remark> said;
    std::optional<run::Return> returned;
    std::optional<int> code;
    bool approved = false;
    SteadyTime wake = run::kNever;
    std::optional<run::Write> writing;
    bool says(run::Remark what) const { return std::find(said.begin(), said.end(), what) != said.end(); }
  };

  explicit ScriptedWorld(run::RunOptions options, int ranks = 1) : ranks_(static_cast<std::size_t>(ranks)) {
    options.world = ranks;
    options.started = now;
    for (int r = 0; r < ranks; ++r) {
      options.rank = r;
      rank(r).core.emplace(options);
    }
  }

  Duration write = std::chrono::seconds(1);
  int failing_writes = 0;  // the next ones
  int failing_copies = 0;
  int failing_closes = 0;  // of copies beside the step
  bool announced = false;  // the program calls before_update()
  bool hangs = false;      // the disk never answers
  SteadyTime now{std::chrono::hours(1000)};
  run::Step at = 0;
  run::Step durable = -1;

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const Rank& operator[](int r) const { return ranks_[static_cast<std::size_t>(r)]; }

  void give(int r, const run::Event& event) {
    queue_.emplace_back(r, event);
    drain();
  }
  // A call of the training thread of each rank, until it has returned. False: it still waits after `most`.
  template <class E>
  bool call(const E& event, Duration most = std::chrono::hours(2)) {
    for (Rank& one : ranks_) one.returned.reset();
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) give(r, event);
    const SteadyTime last = now + most;
    const auto waits = [](const Rank& one) { return !one.returned && !one.code; };
    while (std::any_of(ranks_.begin(), ranks_.end(), waits)) {
      const SteadyTime next = next_time();
      if (next > last) return false;
      go_to(next);
    }
    return true;
  }
  bool step(Duration took = std::chrono::seconds(1), Duration most = std::chrono::hours(2)) {
    pass(took);
    costs_.stepped(took);
    return call(run::StepDone{.step = ++at, .announced = announced}, most);
  }
  void finish() { EXPECT_TRUE(call(run::FinishCalled{at})) << "finish() never returns"; }
  void pass(Duration time) {
    const SteadyTime end = now + time;
    for (SteadyTime next = next_time(); next <= end; next = next_time()) go_to(next);
    now = end;
  }
  // Trains until a save has been measured, and no write is in flight.
  void measure_a_save() {
    while (durable < 1 && at < 1000) step();
    pass(std::chrono::seconds(1));
  }
  std::size_t begun() const { return ranks_[0].begun.size(); }

 private:
  void drain() {
    while (!queue_.empty()) {
      const auto [r, event] = queue_.front();
      queue_.pop_front();
      const auto* const ended = std::get_if<run::SaveEnded>(&event);
      if (r == 0 && ended != nullptr && ended->outcome == run::Outcome::durable) {
        costs_.committed(now - write_began_);
      }
      run::Known known{.costs = costs_.costs()};
      if (r != 0) known.costs.commit.reset();  // rank 0 alone measures commits
      rank(r).core->know(known);
      for (const run::Action& action : rank(r).core->on(event, now)) {
        std::visit([this, to = r](const auto& what) { perform(to, what); }, action);
      }
    }
  }
  SteadyTime next_time() const {
    SteadyTime next = timed_.empty() ? run::kNever : timed_.begin()->first;
    for (const Rank& one : ranks_) next = std::min(next, one.wake);
    return next;
  }
  void go_to(SteadyTime time) {
    now = std::max(now, time);
    if (!timed_.empty() && timed_.begin()->first <= time) {
      const auto event = timed_.begin()->second;
      timed_.erase(timed_.begin());
      return give(event.first, event.second);
    }
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      if (rank(r).wake > time) continue;
      rank(r).wake = run::kNever;
      give(r, run::TimeReached{});
    }
  }
  void end_write(int r, run::Outcome outcome, SteadyTime when) {
    const auto writing = std::exchange(rank(r).writing, std::nullopt);
    timed_.emplace(when, std::pair(r, run::Event(run::SaveEnded{writing->save, outcome})));
    timed_.emplace(when, std::pair(r, run::Event(run::WriterIdle{})));
  }

  void perform(int r, const run::Stage& action) {
    if (action.for_save) rank(r).begun.push_back(now);
    if (r == 0) image_ = action.image;
    const bool ok = failing_copies == 0 || failing_copies-- == 0;
    queue_.emplace_back(r, run::Staged{action.image, ok});
  }
  void perform(int r, const run::CloseCopy& action) {
    const bool fails = failing_closes > 0 && failing_closes-- > 0;
    queue_.emplace_back(r, run::CopyClosed{.image = action.image, .intact = !fails, .failed = fails});
  }
  void perform(int r, const run::Write& action) {
    rank(r).writing = action;
    rank(r).written.push_back(action.step);
    if (r == 0) write_began_ = now;
    if (r == 0 && !hangs) {
      const bool fails = failing_writes > 0 && failing_writes-- > 0;
      ends_[action.step] = {fails ? run::Outcome::failed : run::Outcome::durable, now + write};
    }
    // The ranks end a save together.
    const auto end = ends_.find(action.step);
    if (end == ends_.end()) return;
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      const auto& writing = rank(other).writing;
      if (writing && writing->step == action.step) end_write(other, end->second.first, end->second.second);
    }
  }
  void perform(int r, const run::Decline& action) {
    if (r != 0) return;
    for (int other = 1; other < static_cast<int>(ranks_.size()); ++other) {
      const auto& writing = rank(other).writing;
      if (writing && writing->round == action.round) end_write(other, run::Outcome::overtaken, now);
    }
  }
  void perform(int /*r*/, const run::SendShare& action) {
    if (++shares_[action.step] + 1 == static_cast<int>(ranks_.size()))
      queue_.emplace_back(0, run::SharesHere{action.step, image_});
  }
  void perform(int /*r*/, const run::CallForHelp& /*action*/) { queue_.emplace_back(0, run::HelpCalled{}); }
  void perform(int r, const run::Settle& action) {
    rank(r).settled.push_back(action);
    if (r == 0 && action.outcome == run::Outcome::durable) durable = std::max(durable, action.step);
  }
  void perform(int /*r*/, const run::PostVote& action) {
    votes_ = voters_++ == 0 ? action.vote : run::merged(votes_, action.vote);
    if (voters_ < static_cast<int>(ranks_.size())) return;
    voters_ = 0;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) queue_.emplace_back(r, run::VoteResult{votes_});
  }
  void perform(int r, const run::Return& action) { rank(r).returned = action; }
  void perform(int r, const run::WakeAt& action) { rank(r).wake = action.at; }
  void perform(int r, const run::LetMachineGo& action) { rank(r).approved = action.so; }
  void perform(int /*r*/, const run::TellOutcome& action) {
    for (int r = 1; r < static_cast<int>(ranks_.size()); ++r) {
      queue_.emplace_back(r, run::OutcomeTold{action.code, action.durable});
    }
  }
  void perform(int r, const run::Exit& action) { rank(r).code = action.code; }
  void perform(int r, const run::Say& action) { rank(r).said.push_back(action.what); }
  void perform(int /*r*/, const run::AskOthers& /*action*/) {
    const auto told = [](const Rank& one) { return one.core->told_to_stop(); };
    queue_.emplace_back(0, run::OthersAnswered{std::any_of(ranks_.begin(), ranks_.end(), told)});
  }
  template <class A>
  void perform(int /*r*/, const A& /*action*/) {}

  std::vector<Rank> ranks_;
  CostModel costs_;
  SteadyTime write_began_{};  // by rank 0
  int image_ = 0;             // the newest of rank 0
  std::deque<std::pair<int, run::Event>> queue_;
  std::multimap<SteadyTime, std::pair<int, run::Event>> timed_;
  std::map<run::Step, int> shares_;
  std::map<run::Step, std::pair<run::Outcome, SteadyTime>> ends_;  // of writes
  run::Vote votes_;
  int voters_ = 0;
};

}  // namespace holdfast::simulation
