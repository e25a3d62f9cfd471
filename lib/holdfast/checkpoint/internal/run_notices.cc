// What is heard of ends and stops, from this rank's sources and from votes.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/run_driver.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Less is no hibernation.
constexpr Duration kSlept = std::chrono::seconds(5);
// Others dismiss an outlived end before rank 0 does (kAliveAfter), so rank 0 hears that the machine lives.
constexpr Duration kOutlivedByOthers = kAliveAfter - std::chrono::seconds(2);
constexpr Duration kRiskLastsFor = std::chrono::minutes(30);
constexpr char kOthersEnd[] = "the end of another rank's machine is announced";
constexpr char kOthersSleep[] = "the hibernation of another rank's machine is announced";

}  // namespace

run::NoticeHeard RunDriver::event_of(const Notice& notice) {
  int source = 0;
  try {
    const std::pair<const void*, std::string> key(notice.from, notice.from ? std::string() : notice.source);
    const auto known = std::find(sources_.begin(), sources_.end(), key);
    source = static_cast<int>(known - sources_.begin());
    if (known == sources_.end()) sources_.push_back(key);
  } catch (const std::bad_alloc&) {  // without memory for its name it counts as the first source
    source = 0;
  }
  OnNotice policy = run_.options.notices.on_notice;
  if (policy == OnNotice::callback) {
    policy = decided_ && decided_->source == source ? decided_->policy : OnNotice::train_on;
  }
  // A source may repeat the notice after the machine has slept, before the training looks.
  const bool sleeps = core_ && core_->ends().earliest({.sleeps = run::RunEnds::Sleeps::alone}) != run::kNever;
  if (notice.hibernates && !sleeps) asleep_ = run_.clock.asleep();
  return {.source = source,
          .kind = notice.kind,
          .at = notice.deadline.value_or(run::kNever),
          .guessed = notice.guessed,
          .hibernates = notice.hibernates,
          .policy = policy,
          .gives_up = notice.source == "saves"};
}

void RunDriver::hear(const Notice& notice) noexcept {
  others_.heard(notice);
  run::Actions actions;
  {
    const MutexLock lock(mutex_);
    if (!core_) return;  // begin() asks for all that came before
    if (notice.kind == NoticeKind::checkpoint_now && !run_.monitor.take_checkpoint_request()) return;
    if (notice.kind == NoticeKind::at_risk && !run_.monitor.take_risk()) return;
    consider(event_of(notice), actions);
    for (const run::Action& action : actions) {
      if (std::holds_alternative<run::CallForHelp>(action)) {
        calls_ = true;
      } else if (noticed_.size() < run::Actions::kMost) {
        noticed_.push_back(action);
      } else {
        log_error("a bug of Holdfast: notices have led to more than can be done, and some is left out");
      }
    }
  }
  // A run that is told to stop deletes when its end is told (FinalWrites).
  if (notice.kind == NoticeKind::stop && run_.writer) run_.writer->leave_soon();
  if (notice.kind == NoticeKind::at_risk) {
    log_info("the machine is at risk: a save now, and the interval is halved for {}",
             format_duration(kRiskLastsFor));
  }
}

void RunDriver::standby_is_ready(bool so) noexcept {
  standby_ = so;  // for begin()
  give(run::StandbyReady{so});
}

// OnNotice::callback: once for each notice, on the training thread.
void RunDriver::ask_the_program() try {
  const NoticeOptions& options = run_.options.notices;
  if (options.on_notice != OnNotice::callback) return;
  run::RunEnds::End end;
  {
    const MutexLock lock(mutex_);
    const run::RunEnds::End* const standing = core_->ends().standing();
    if (standing == nullptr) {
      decided_.reset();
      return;
    }
    if (decided_ && decided_->source == standing->source && decided_->seen == standing->seen) return;
    // Rank 0 decides for all, about the ends of other ranks' machines as well.
    if (!others_.leads() && standing->source < 0) return;
    end = *standing;
  }
  Notice notice{.source = "another rank", .kind = NoticeKind::deadline, .text = kOthersEnd};
  if (end.source >= 0) {
    if (auto own = run_.monitor.standing()) notice = *std::move(own);
  }
  notice.deadline = end.at;
  notice.hibernates = end.hibernates;
  notice.guessed = end.guessed;
  notice.seen = end.seen;
  const OnNotice policy = ask_policy(options, notice, run_.clock.now());
  const run::NoticeAnswered answer{.source = end.source, .seen = end.seen, .policy = policy};
  {
    const MutexLock lock(mutex_);
    decided_ = answer;
  }
  give(answer);
} catch (const std::bad_alloc&) {  // asked again at the next look
}

// The machine was announced to hibernate, and has slept.
void RunDriver::look_at_sleep() noexcept {
  {
    const MutexLock lock(mutex_);
    if (core_->ends().earliest({.sleeps = run::RunEnds::Sleeps::alone}) == run::kNever) return;
    if (run_.clock.asleep() - asleep_ <= kSlept) return;
    asleep_ = run_.clock.asleep();
  }
  give(run::MachineWoke{});
}

void RunDriver::look() noexcept {
  if (!begun()) return;
  carry_out_noticed();
  try {
    if (!others_.alone() && others_.leads() && evaluating()) {
      if (others_.called()) give(run::HelpCalled{});
      const Staged image = saves_.kept(evaluated_);
      if (image && in_flight_ == 0) {
        const auto put_in = others_.own_of_boundary(image.layout->tensors());
        const int complete = put_in ? saves_.complete(image, put_in) : 0;
        if (complete > 0) give(run::SharesHere{.step = image.snapshot->step, .image = complete});
      }
    }
  } catch (const std::exception& error) {
    log_debug("the image of an evaluation could not be completed: {}", what_of(error));
  }
  bool reached = false;
  {
    const MutexLock lock(mutex_);
    reached = run_.clock.now() >= wake_;
  }
  if (reached) give(run::TimeReached{});
}

// The result of a vote, and what is news in it.
void RunDriver::hear_others(const run::Vote& all) {
  const SteadyTime now = run_.clock.now();
  std::optional<run::RunEnds::End> end, sleep, end_now, sleep_now;
  bool stopped = false, stops = false;
  run::Actions actions;
  {
    const MutexLock lock(mutex_);
    const auto look = [this](auto& an_end, auto& a_sleep, bool& stop) HOLDFAST_REQUIRES(mutex_) {
      const run::RunEnds& ends = core_->ends();
      if (ends.others_end() != nullptr) an_end = *ends.others_end();
      if (ends.others_sleep() != nullptr) a_sleep = *ends.others_sleep();
      stop = ends.others_stop();
    };
    look(end, sleep, stopped);
    consider(run::VoteResult{all}, actions);
    look(end_now, sleep_now, stops);
  }
  carry_out(actions);
  const auto tell = [this](const Notice& notice) {
    run_.ledger.notice(notice);
    const std::string left =
        notice.deadline ? ", " + format_duration(*notice.deadline - *notice.seen) + " left" : std::string();
    log_info("notice ({}): {}{}", notice.source, notice.text, left);
  };
  const auto changed = [&](const auto& before, const auto& after, const char* source,
                           const std::string& text) {
    if (!others_.leads() || all.stop >= 0) return;
    if (before && !after)
      tell({.source = source, .kind = NoticeKind::withdrawn, .text = text + " no more", .seen = now});
    if (!after || (before && before->at == after->at)) return;
    tell({.source = source,
          .kind = NoticeKind::deadline,
          .deadline = after->at,
          .text = text,
          .hibernates = after->hibernates,
          .guessed = after->guessed,
          .seen = now});
  };
  changed(end, end_now, "another rank", kOthersEnd);
  changed(sleep, sleep_now, "another rank's machine", kOthersSleep);
  if (sleep_now && !sleep) {
    const MutexLock lock(mutex_);
    asleep_ = run_.clock.asleep();
  }
  if (stops && !stopped) {
    // An end that has passed says nothing about the time left.
    run_.monitor.dismiss(now);
    Notice stop{.source = "another rank", .kind = NoticeKind::stop, .text = reason(), .seen = now};
    if (all.left.any != run::kNoEnd && all.left.any > Duration::zero()) stop.deadline = now + all.left.any;
    stop.guessed = all.left.named == run::kNoEnd;
    tell(stop);
    listener_.wake();  // it watches whether the program leaves its loop
    if (run_.writer) run_.writer->leave_soon();
  }
  if (!others_.leads() && run_.monitor.deadline() && !run_.monitor.stop_requested()) {
    run_.monitor.dismiss(now - kOutlivedByOthers);
  }
}

std::string RunDriver::text_of_end() const {
  const MutexLock lock(mutex_);
  return core_ ? end_now() : run_.monitor.reason();
}

std::string RunDriver::end_now() const {
  const run::RunEnds& ends = core_->ends();
  if (ends.own_stop()) return run_.monitor.reason();
  if (ends.others_stop()) return "rank " + std::to_string(others_.told_to_stop()) + " was told to stop";
  const run::RunEnds::End* const end = ends.standing();
  if (end != nullptr && end->source == run::RunEnds::kAnotherRank) return kOthersEnd;
  if (end != nullptr && end->source == run::RunEnds::kSleepOfAnotherRank) return kOthersSleep;
  return run_.monitor.reason();
}

std::string RunDriver::reason_now() const {
  if (!core_->ends().stop_requested() && !core_->stopping()) return {};
  std::string reason = end_now();
  if (core_->hands_over()) reason.append("; ").append(kHandedOver);
  return reason;
}

void RunDriver::record_reason() noexcept {
  if (std::exchange(left_, true)) return;
  try {
    reason_ = reason_now();
  } catch (const std::bad_alloc&) {
    reason_ = "out of memory";
  }
}

std::string RunDriver::reason() const noexcept {
  return text_or_out_of_memory([this] {
    // A newer attempt is found at any time, also after the run has decided to stop.
    if (run_.writer && run_.writer->superseded()) return run_.writer->superseded_reason();
    if (!begun()) return run_.start_must_end() ? run_.monitor.reason() : std::string();
    const MutexLock lock(mutex_);
    return left_ ? reason_ : reason_now();
  });
}

}}}  // namespace holdfast::v0_2::internal
