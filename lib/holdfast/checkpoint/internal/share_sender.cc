#include "holdfast/checkpoint/internal/share_sender.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/ranks/ranked_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How soon a notice is heard during a wait.
constexpr Duration kShareSlice = std::chrono::milliseconds(50);
// After its grace the thread gives up its waits, and has this long to do so.
constexpr Duration kRest = std::chrono::seconds(5);
// Rank 0 may still be in an earlier evaluation.
constexpr std::size_t kStillWanted = 2;
constexpr char kStillWriting[] = "it still writes its share of the save before";

}  // namespace

void ShareSender::begin_sharing() {
  writer_ = std::make_unique<ShareWriterThread>(group_.shared(), group_.guarded(), run_.file_system,
                                                run_.options.directory, run_.clock);
}

void ShareSender::send(Decision& decision, bool last_one) {
  if (rounds_.plan() != 0) return send_share(decision, last_one);
  tell_own();
  try {
    // Ends this rank at the same boundary as rank 0, which stages the same state.
    run_.stager.check_source();
  } catch (const std::exception& error) {
    engine_.saves.unsavable().learn_from(error);
  }
  engine_.schedule.want(false);
  const BegunSave save = engine_.saves.begin(true);
  save->left_to_others();
  begin_save(decision, save);
}

void ShareSender::begin_save(Decision& decision, const BegunSave& save) {
  // Rank 0's outcome settles this handle on this thread, which must not wait for itself.
  save->settled_by = std::this_thread::get_id();
  save->staged(run_.clock.now());
  decision.saved = true;
  decision.save = group_.begin_save(save);
}

void ShareSender::send_share(Decision& decision, bool last_one) {
  const Waiting waiting(run_.time);
  if (last_one) engine_.limit.lift();
  engine_.schedule.want(false);
  // Another save begins only while no rank is busy, so its image is free.
  const bool free = !last_one || wait_for_image();
  const BegunSave save = engine_.saves.begin(true);
  HandedShare share{.save = {.plan = nullptr, .shares = nullptr, .number = rounds_.number()},
                    .step = run_.step(),
                    .own = own_now(run_.step()),
                    .how = rounds_.limits(),
                    .handle = save};
  if (!free) {
    // A share that hangs in the disk blocks the thread, so this thread tells rank 0 that the save fails.
    log_error("this rank takes no part in the save of step {}: {}", share.step, kStillWriting);
    group_.shared().decline(share.step, kStillWriting, share.save.number);
    tell_own();
    save->left_to_others();
    return begin_save(decision, save);
  }
  try {
    Staged staged = stage(last_one);
    save->update([&](SaveFigures& figures) {
      figures.blocked = waiting.so_far();
      figures.staged = staged.bytes;
    });
    share.save.plan = std::move(staged.plan);
    share.save.shares = std::move(staged.shares);
    share.snapshot = std::move(staged.snapshot);
  } catch (const std::exception& error) {
    engine_.saves.unsavable().learn_from(error);
    share.refusal = what_of(error);
    log_error("this rank's share of step {} could not be copied: {}", share.step, share.refusal);
  }
  begin_save(decision, save);
  writer_->hand(std::move(share));
}

Staged ShareSender::stage(bool last_one) {
  if (last_one || !run_.source.on_device()) return engine_.saves.stage_all();
  return engine_.late.stage_independent();
}

// False: the image did not come free in time.
bool ShareSender::wait_for_image() {
  const SteadyTime began = run_.clock.now();
  Duration waited{};
  while (!run_.stager.wait_ready(kShareSlice)) {
    engine_.listener.heard();
    waited += kShareSlice;
    const SteadyTime now = run_.clock.now();
    if (run_.outlook.out_of_time(began) || std::max(waited, now - began) >= rounds_.longest_wait()) {
      return false;
    }
  }
  return true;
}

void ShareSender::hold() noexcept {
  try {
    held_own_ = own_of(run_.source);
    held_step_ = run_.step();
  } catch (const std::exception& error) {
    log_debug("this rank's own state at its last step is not kept: {}", what_of(error));
  }
}

std::string ShareSender::own() const { return held_step_ == run_.step() ? held_own_ : own_of(run_.source); }

// The content of own_text(step); empty: this rank has no own state.
std::string ShareSender::own_now(std::int64_t step) {
  own_failed_ = false;
  try {
    std::string now = own();
    if (!now.empty()) now.insert(0, 1, kOwnBytes);
    return now;
  } catch (const std::exception& error) {
    log_error("this rank's own state at step {} could not be copied: {}", step, what_of(error));
    own_failed_ = true;  // sent again at the next request
    return std::string(1, kNoOwn) + what_of(error);
  }
}

void ShareSender::tell_own() {
  const std::int64_t step = run_.step();
  if (told_ == step && !own_failed_) return;
  const std::string own = own_now(step);
  if (own.empty()) return;
  group_.channel().tell(own_text(step), own);
  if (told_ == step) return;
  // Rank 0 has begun another save since: it has read this text, or never will.
  if (told_before_ >= 0) group_.channel().forget(own_text(told_before_));
  told_before_ = std::exchange(told_, step);
}

void ShareSender::tell_boundary(const std::string& name) noexcept {
  try {
    const std::string now = own();
    if (now.empty()) return;
    group_.channel().tell(name, now);
    told_boundaries_.push_back(name);
    if (told_boundaries_.size() <= kStillWanted) return;
    group_.channel().forget(told_boundaries_.front());
    told_boundaries_.erase(told_boundaries_.begin());
  } catch (const std::exception& error) {
    log_debug("this rank's own state in an evaluation could not be sent to rank 0: {}", what_of(error));
  }
}

bool ShareSender::rest(Duration grace) noexcept {
  group_.patience().end_by(run_.clock.now() + grace);
  if (!writer_) return true;
  Duration waited{};
  const SteadyTime began = run_.clock.now();
  while (waited < grace + kRest && !writer_->wait_idle(kShareSlice)) {
    engine_.listener.heard();
    waited += kShareSlice;
    // No time is left: the thread gives up its waits.
    if (run_.outlook.out_of_time(began) || waited >= grace) group_.patience().end_by(SteadyTime::min());
  }
  return !writer_->busy();
}

}}}  // namespace holdfast::v0_2::internal
