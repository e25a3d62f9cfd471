// The training program of each rank: its loop, its evaluations and its end.
#include <algorithm>
#include <utility>

#include "simulated_run.h"

namespace holdfast::simulation {

using namespace run;

void SimulatedRun::call(int r, Call which, const Event& event) {
  Rank& x = rank(r);
  if (!x.alive || x.exited || x.lost) return;
  x.in_call = which;
  x.call_since = now_;
  if (which == Call::finish && r == 0) {
    finish_at_ = now_;
    busy_at_finish_ = disk_.busy || std::any_of(x.images.begin(), x.images.end(),
                                                [](const auto& image) { return !image.second.complete; });
    last_tried_ = false;
  }
  promise(Promise::training_is_not_approved, !x.approved,
          "the training goes on, and the machine may still end");
  after(3 * kHour, [=, this, since = now_] {
    const Rank& y = rank(r);
    const bool waits = y.alive && !y.exited && y.in_call == which && y.call_since == since;
    promise(Promise::calls_return, !waits, "a call of the training thread lasts three hours");
  });
  give(r, event);
}

void SimulatedRun::begin_step(int r) {
  Rank& x = rank(r);
  const std::uint64_t k = key(static_cast<std::uint64_t>(x.step) * 8 + 100);
  Ms lasts = between(30, k + static_cast<std::uint64_t>(r), step_ms_ * 9 / 10, step_ms_ * 11 / 10);
  if (faulty() && happens(long_step, k, 3)) lasts += between(31, k, 1'000, 30'000);
  x.step_began = now_;
  x.announced = has(copies_beside_steps) && !(faulty() && happens(no_update_call, k, 4));
  if (faulty() && has(copies_beside_steps) && happens(spoil, k, 10)) {
    after(lasts * 3 / 10, [this, r] { rank(r).live = mix(rank(r).live, 0xbad); });
  }
  after(lasts * 7 / 10, [=, this] { rank(r).announced ? update_begins(r) : arrive(r); });
}

// Most updates are no event.
void SimulatedRun::update_begins(int r) {
  Rank& x = rank(r);
  const std::uint64_t k = key(static_cast<std::uint64_t>(x.step) * 8 + 102);
  const bool copies = std::any_of(x.images.begin(), x.images.end(), [](const auto& image) {
    return image.second.copy == run::Copy::beside_step;
  });
  const bool saves = !x.torn && happens(saves_in_updates, k, 3);
  if (copies || x.torn || saves) return call(r, Call::update, BeforeUpdate{x.step});
  arrive(r);
}

void SimulatedRun::finish(int r) {
  Rank& x = rank(r);
  const bool stale = !x.core->stopping() && x.live == x.truth[static_cast<std::size_t>(x.step)] &&
                     happens(Fault::stale, key(static_cast<std::uint64_t>(x.step)), 30);
  call(r, Call::finish, FinishCalled{.step = x.step, .stale = stale});
}

// The update begins where all ranks have computed their part.
void SimulatedRun::arrive(int r) {
  Rank& x = rank(r);
  if (!x.alive || x.exited || x.lost) return;
  x.live = mix(x.live, 'u');
  const Step step = x.step + 1;
  if (++arrived_[step] < world_) return;
  for (int other = 0; other < world_; ++other) {
    after(step_ms_ * 3 / 10 + 1, [=, this] { step_done(other, step); });
  }
}

void SimulatedRun::step_done(int r, Step step) {
  Rank& x = rank(r);
  if (!x.alive || x.exited || x.lost) return;
  x.step = step;
  x.live = x.truth[static_cast<std::size_t>(step)];
  x.boundary = 0;
  if (r == 0 && calm_ && told_ == 0) check_overdue(step);
  if (r == 0 && step == last_ && faulty() && !stop_told_ && happens(stop, key(8), 40)) stop_at_the_end();
  const bool evaluates = has(evaluations) && step % evaluate_every_ == 0;
  if (r == 0 && evaluates && faulty() && told_ == 0 &&
      happens(notice, key(900) + static_cast<std::uint64_t>(step), 10)) {
    // The insurance is in flight when the evaluation begins.
    const NoticeHeard end{.source = 7, .at = steady(now_ + 110'000), .guessed = true, .policy = policy_};
    announce(0, end, 300'000, true, between(13, key(901), 20'000, 60'000));
  }
  Keep keep = Keep::nothing;
  if (has(epochs) && step == last_) keep = Keep::last;
  if (has(epochs) && step < last_ && world_ == 1 && step % 20 == 0) keep = Keep::epoch;
  if (keep == Keep::nothing && step < x.quiet.before && steady(now_) < x.quiet.until) {
    ++counted.quiet_steps;
    return next(r, Call::step, false);
  }
  x.measured->stepped(std::chrono::milliseconds(now_ - x.step_began));
  measure(r);
  if (keep == Keep::last && !has(spread)) x.kept = step;
  if (r == 0 && x.failing > 1 && !stop_told_ &&
      happens(gives_up, key(static_cast<std::uint64_t>(step)), 30)) {
    give_up();
  }
  call(r, Call::step, StepDone{.step = step, .announced = x.announced, .keep = keep});
}

// No save has succeeded for long.
void SimulatedRun::give_up() {
  ++told_;
  ++open_ends_;
  gave_up_ = stop_told_ = leader().stop_told = true;
  only_sleeps_ = false;
  give(0, NoticeHeard{.source = 97, .kind = NoticeKind::stop, .at = kNever, .gives_up = true});
}

void SimulatedRun::check_overdue(Step step) {
  const Ms evaluation = has(evaluations) ? 12 * tick_ms_ : 0;
  if (has(automatic) || every_ms_ > 0) {
    const Ms every = every_ms_ > 0 ? every_ms_ : 60'000;
    const Ms most = 2 * every + 4 * longest_write() + 15'000 + 8 * step_ms_ + evaluation;
    promise(Promise::save_is_not_overdue, now_ - last_commit_ <= most, "a save is overdue");
    if (every_ms_ > 0 || write_times_.empty() || stalls_.empty() || world_ > 1 || has(evaluations)) return;
    Ms stalled = 0;
    for (const Ms stall : stalls_) stalled += stall;
    const SaveCost cost{.stall = std::chrono::milliseconds(stalled / static_cast<Ms>(stalls_.size()) + 5),
                        .write = std::chrono::milliseconds(longest_write())};
    const Ms interval = ms(plan_interval(cost, hazard_of({}), {}));
    const bool learned =
        now_ - last_begun_ <= interval * 11 / 10 + 3 * step_ms_ + longest_write() + evaluation + 1'000;
    promise(Promise::interval_is_learned, learned, "the interval does not follow from what a save costs");
  } else {
    const Step newest = store_.empty() ? 0 : store_.rbegin()->first;
    const Step most = 2 * every_ + (2 * longest_write() + 9'000 + evaluation) / step_ms_ + 8;
    promise(Promise::save_is_not_overdue, step - newest <= most, "a save is overdue");
  }
}

void SimulatedRun::next(int r, Call done, bool stop) {
  Rank& x = rank(r);
  switch (done) {
    case Call::update: {
      if (x.torn) {
        x.live = mix(x.live, 'u');
        return finish(r);
      }
      const std::uint64_t k = key(static_cast<std::uint64_t>(x.step) * 8 + 102);
      if (!happens(saves_in_updates, k, 3) || draw(65, k) % 3 == 0) return arrive(r);
      x.saves_in_update = true;
      ++requests_;
      return call(r, Call::save, SaveCalled{x.step});
    }
    case Call::step:
      return after_step_returned(r, stop);
    case Call::evaluation_begin:
      x.before = std::exchange(x.live, mix(x.live, 'e'));  // averaged weights are swapped in
      x.ticks = 0;
      x.best_measured = false;
      return evaluate(r, done, stop);
    case Call::tick:
      return evaluate(r, done, stop);
    case Call::evaluation_end: {
      const bool disturbed = x.live != x.truth[static_cast<std::size_t>(x.step)];
      const bool gives_up =
          x.core->leaving() || (disturbed && draw(44, key(static_cast<std::uint64_t>(x.step))) % 2 != 0);
      if (x.loop_over || gives_up) return finish(r);
      if (draw(47, key(static_cast<std::uint64_t>(x.step))) % 4 == 0 &&
          !std::exchange(x.evaluated_again, true)) {
        ++x.boundary;
        return call(r, Call::evaluation_begin, EvaluationBegun{.step = x.step, .again = world_ > 1});
      }
      x.evaluated_again = false;
      return begin_step(r);
    }
    case Call::save:
    case Call::best:
      if (std::exchange(x.saves_in_update, false)) return arrive(r);
      if (x.core->evaluating()) return tick(r);
      x.loop_over ? finish(r) : begin_step(r);
      return;
    case Call::none:
    case Call::finish:
      return;
  }
}

void SimulatedRun::after_step_returned(int r, bool stop) {
  Rank& x = rank(r);
  const std::uint64_t k = key(static_cast<std::uint64_t>(x.step) * 8 + 3);
  if (world_ == 1 && has(stage_fails) && faulty() && x.failing > 0 && happens(unsavable, k, 20)) {
    return leave_in_error(r, 64);  // no start could load the state
  }
  // At the end of an epoch the program loads its best weights, where an image holds the boundary.
  const bool held = world_ == 1 && has(epochs) && (x.core->holds_image() || x.core->is_safe());
  const bool changes = held && (x.step % 20 == 0 || x.step >= last_) && draw(45, k) % 2 == 0;
  if (changes) x.live = mix(x.live, 'b');
  if (stop || x.step >= last_) {
    if (!stop && faulty() && happens(torn_finish, k, 50)) {
      torn_called_ = x.torn = true;
      return update_begins(r);
    }
    return end_loop(r);
  }
  if (changes) return begin_step(r);
  if (has(evaluations) && x.step % evaluate_every_ == 0) {
    return after(between(40, k + static_cast<std::uint64_t>(r), 0, 300),
                 [this, r] { call(r, Call::evaluation_begin, EvaluationBegun{rank(r).step}); });
  }
  if (happens(request, k, 4)) {
    ++requests_;
    return call(r, Call::save, SaveCalled{x.step});
  }
  if (happens(best, k, 5)) {
    ++requests_;
    return call(r, Call::best, BestMeasured{x.step});
  }
  begin_step(r);
}

// Some programs evaluate once more, or save.
void SimulatedRun::end_loop(int r) {
  Rank& x = rank(r);
  const auto drawn = draw(66, key(static_cast<std::uint64_t>(x.step))) % 8;
  x.loop_over = true;
  if (drawn == 0 && has(evaluations)) return call(r, Call::evaluation_begin, EvaluationBegun{x.step});
  if (drawn == 1 && has(request)) {
    ++requests_;
    return call(r, Call::save, SaveCalled{x.step});
  }
  finish(r);
}

// Without news a tick reads a flag.
void SimulatedRun::tick(int r) {
  const RunCore& core = *rank(r).core;
  if (core.ends().pending() || core.must_look()) return call(r, Call::tick, Ticked{});
  next(r, Call::tick, false);
}

void SimulatedRun::evaluate(int r, Call done, bool stop) {
  Rank& x = rank(r);
  const std::uint64_t k = key(static_cast<std::uint64_t>(x.step) * 8 + 3);
  // Not every program leaves its evaluation at once, and some end inside.
  const bool ends = ++x.ticks > 8 || (stop && draw(67, k + static_cast<std::uint64_t>(x.ticks)) % 4 != 0);
  const bool thrown = !stop && ends && faulty() &&
                      happens(evaluation_throws, k + 4 * static_cast<std::uint64_t>(x.boundary), 30);
  if (done == Call::tick && x.ticks == 3 && !stop && happens(request, k, 30)) {
    ++requests_;
    return call(r, Call::save, SaveCalled{x.step});
  }
  if (done == Call::tick && x.ticks == 5 && !stop && happens(best, k, 30)) {
    ++requests_;
    x.best_measured = true;
    return call(r, Call::best, BestMeasured{x.step});
  }
  const bool leaves = x.ticks == 6 && faulty() && happens(torn_finish, k, 5);
  Ms lasts = between(43, k + static_cast<std::uint64_t>(x.ticks), 10, tick_ms_);
  if (faulty() && happens(long_step, k + static_cast<std::uint64_t>(x.ticks), 1)) lasts += 100'000;
  after(lasts, [=, this] {
    if (leaves && !ends) {
      torn_called_ = true;
      return finish(r);
    }
    if (!ends) return tick(r);
    const bool cut_short = thrown && draw(46, k) % 3 == 0;
    if (!thrown || (cut_short && world_ > 1)) rank(r).live = rank(r).before;
    call(r, Call::evaluation_end, EvaluationEnded{.thrown = thrown && !cut_short, .cut_short = cut_short});
  });
}

}  // namespace holdfast::simulation
