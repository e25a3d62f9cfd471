// One checkpoint file, written by all ranks that see rank 0's volume (shared_write.h).
//
// A *round* is a save that all have agreed on. Its number counts the same everywhere. At the boundary each
// rank stages its share, on the training thread; then the writer's thread of rank 0 leads, and a thread of
// every other rank follows (ranks/share_writer_thread.h). A rank that follows waits for rank 0's first word;
// so rank 0 owes it from begin_round() on, also when it finds no time, no memory, or that it has to write
// alone.
#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/ranks/shared_volume.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr Duration kHandSlice = std::chrono::milliseconds(50);
constexpr Duration kHandRest = std::chrono::seconds(5);
constexpr char kStillWriting[] = "it still writes its share of the save before";

}  // namespace

// After the claim. Collective.
void Checkpointer::State::find_ranks_on_volume() {
  const SharedVolume volume =
      find_shared_volume(file_system, options.directory, started.record.attempt, ranks->channel, clock);
  const auto others = std::count(volume.sees.begin() + 1, volume.sees.end(), true);
  ranks->sees = volume.sees;
  if (ranks->leads()) {
    for (std::size_t rank = 1; rank < volume.sees.size(); ++rank) {
      if (volume.sees[rank]) continue;
      log_info("rank {} does not see {}, and gets the state from rank 0: {}", static_cast<int>(rank),
               options.directory, volume.reasons[rank]);
    }
  }
  if (others == 0) return;
  if (ranks->leads()) log_info("{} of {} ranks write each checkpoint", others + 1, ranks->world_size());
  ranks->sharing = true;
  stager.divide_among(ranks->rank(), volume.sees);
  if (ranks->leads()) return;
  hand = std::make_unique<internal::ShareWriterThread>(*ranks->together, ranks->guarded, file_system,
                                                       options.directory, clock);
}

void Checkpointer::State::begin_round(const Agreed& agreed) {
  ranks->round.plan = ranks->sharing && agreed.shares() ? agreed.plan : 0;
  limit_patience();
  if (ranks->round.plan == 0) return;
  ++ranks->round.number;
  ranks->round.owed = ranks->leads();
}

// Before the others count this rank as lost: while it waits it does not vote.
Duration Checkpointer::State::longest_wait_for_share() const { return ranks->channel.timeout() / 2; }

void Checkpointer::State::end_round(const Decision& decision) noexcept {
  if (std::exchange(ranks->round.owed, false)) {
    if (decision.save.step() == source.step()) {
      const std::string failed = text_or_out_of_memory([&] { return decision.save.error(); });
      ranks->together->decline(source.step(), failed, ranks->round.number);
    } else {
      // It is durable already, or on its way, or there is no time or no room for it: no failure.
      ranks->together->leave_out(source.step(), ranks->round.number);
    }
  }
  ranks->round.plan = 0;
}

// What a rank other than 0 does where all save.
void Checkpointer::State::send_share(Decision& decision, bool last_one) {
  if (ranks->round.plan != 0) return hand_share(decision, last_one);
  tell_own();
  save_wanted = false;
  const BegunSave save = begin_save(true);
  save->staged(clock.now());
  save->settled_by = std::this_thread::get_id();
  decision.saved = true;
  decision.save = ranks->begin_save(save);
}

// What goes wrong here fails this save on all ranks, but where rank 0 writes alone.
void Checkpointer::State::hand_share(Decision& decision, bool last_one) {
  const Waiting waiting(time);
  if (last_one) lift_limit();
  save_wanted = false;
  const bool free = !last_one || wait_for_own_image();
  const BegunSave save = begin_save(true);
  save->settled_by = std::this_thread::get_id();
  internal::HandedShare share{.save = {.plan = nullptr, .shares = nullptr, .number = ranks->round.number},
                              .step = source.step(),
                              .own = own_now(source.step()),
                              .how = share_limits(),
                              .handle = save};
  if (!free) {
    // What hangs in the disk keeps the hand as well: rank 0 is told here, for this save fails of it.
    log_error("this rank takes no part in the save of step {}: {}", share.step, kStillWriting);
    ranks->together->decline(share.step, kStillWriting, share.save.number);
    tell_own();
    save->staged(clock.now());
    decision.saved = true;
    decision.save = ranks->begin_save(save);
    return;
  }
  try {
    internal::Staged staged = stage_share(last_one);
    save->update([&](SaveFigures& figures) {
      figures.blocked = waiting.so_far();
      figures.staged = staged.bytes;
    });
    share.save.plan = std::move(staged.plan);
    share.save.shares = std::move(staged.shares);
    share.snapshot = std::move(staged.snapshot);
  } catch (const std::exception& error) {
    share.refusal = what_of(error);
    log_error("this rank's share of step {} could not be copied: {}", share.step, share.refusal);
  }
  save->staged(clock.now());
  decision.saved = true;
  decision.save = ranks->begin_save(save);
  hand->hand(std::move(share));
}

internal::Staged Checkpointer::State::stage_share(bool last_one) {
  if (last_one || !source.on_device()) return stage(Part::all);
  internal::Staged staged = stage(Part::early);
  auto copy = source.prepare_independent(*staged.layout, staged.snapshot->arena->bytes());
  copy->run();
  keeper.keep(copy, *staged.snapshot);
  return staged;
}

bool Checkpointer::State::wait_for_own_image() {
  const SteadyTime began = clock.now();
  Duration waited{};
  while (!stager.wait_ready(kHandSlice)) {
    watch->heard();
    waited += kHandSlice;
    const SteadyTime now = clock.now();
    if (outlook.out_of_time(began) || std::max(waited, now - began) >= longest_wait_for_share()) return false;
  }
  return true;
}

SharedWriteOptions Checkpointer::State::share_limits() const {
  SharedWriteOptions limits{.how = {.threads = options.writing.threads,
                                    .write_limit = options.writing.write_limit / ranks->world_size(),
                                    .clock = &clock,
                                    .hurry = &ranks->hurry},
                            .patience = &ranks->patience};
  limits.begin_within = std::min(limits.begin_within, longest_wait_for_share());
  limits.reports_within = std::min(limits.reports_within, longest_wait_for_share());
  return limits;
}

// Before an announced end rank 0 gives up a save while it could still write one alone, but not before this
// one could be over; where there is no time for both, it has nothing better to do than to wait. The others
// wait for rank 0.
void Checkpointer::State::limit_patience() noexcept {
  ranks->patient_until = ranks->end;
  if (!ranks->end) return ranks->patience.renew();
  SteadyTime until = *ranks->end;
  const Duration left = *ranks->end - clock.now();
  if (ranks->leads() && ranks->sharing && !ranks->alone && left > Duration::zero()) {
    const Costs known = outlook.costs();
    const Duration together = known.commit.value_or(left / 3);
    const Duration alone = known.commit ? *known.commit * ranks->world_size() : left / 3;
    if (left >= together + alone + known.agreement) until -= alone + known.agreement;
  }
  ranks->patience.end_by(until);
}

// Nobody waits for others any longer than that. What still hangs in a disk then is left behind.
void Checkpointer::State::rest_hand(Duration grace) noexcept {
  ranks->patience.end_by(clock.now() + grace);
  if (!hand) return;
  Duration waited{};
  const SteadyTime began = clock.now();
  while (waited < grace + kHandRest && !hand->wait_idle(kHandSlice)) {
    watch->heard();
    waited += kHandSlice;
    if (outlook.out_of_time(began) || waited >= grace) ranks->patience.end_by(SteadyTime::min());
  }
  gave_up = hand->busy();
}

}}  // namespace holdfast::v1
