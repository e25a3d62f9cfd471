#include "holdfast/ranks/store_votes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/ranks/gathering.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAtSigns = 100ms;  // between two checks of the signs of life
constexpr Duration kLastWord = 2s;

// Bytes as they lie in memory: all ranks of a run have the same kind of processor.
std::string text_of(const Ballot& ballot) {
  return {reinterpret_cast<const char*>(ballot.data()), sizeof ballot};
}

std::optional<Ballot> ballot_in(const std::string& text) {
  Ballot ballot;
  if (text.size() != sizeof ballot) return std::nullopt;
  std::memcpy(ballot.data(), text.data(), sizeof ballot);
  return ballot;
}

std::string largest_of(const RankTexts& texts) {
  std::optional<Ballot> largest;
  for (const auto& [rank, text] : texts) {
    const auto ballot = ballot_in(text);
    if (ballot) largest = largest ? larger_of(*largest, *ballot) : *ballot;
  }
  return largest ? text_of(*largest) : std::string();
}

}  // namespace

struct StoreVotes::State {
  State(std::shared_ptr<RankStore> the_store, std::shared_ptr<RankStore> the_waits, std::string the_prefix,
        int the_rank, int ranks, std::shared_ptr<const Alarm> the_alarm)
      : store(std::move(the_store)),
        waits(std::move(the_waits)),
        prefix(std::move(the_prefix)),
        rank(the_rank),
        world_size(ranks),
        alarm(std::move(the_alarm)) {}

  const std::shared_ptr<RankStore> store;
  const std::shared_ptr<RankStore> waits;
  const std::string prefix;
  const int rank;
  const int world_size;
  const std::shared_ptr<const Alarm> alarm;

  Mutex mutex;
  CondVar wake;
  std::int64_t round HOLDFAST_GUARDED_BY(mutex) =
      0;  // of the newest ballot without a result, or the next one
  bool pending HOLDFAST_GUARDED_BY(mutex) = false;
  std::optional<Ballot> newest HOLDFAST_GUARDED_BY(mutex);  // of this rank
  std::optional<Ballot> mine HOLDFAST_GUARDED_BY(mutex);
  std::optional<Ballot> result HOLDFAST_GUARDED_BY(mutex);
  std::exception_ptr failure HOLDFAST_GUARDED_BY(mutex);
  bool running HOLDFAST_GUARDED_BY(mutex) = true;  // the thread
  std::atomic<bool> ended{false};

  std::string name_of(std::int64_t number) const { return prefix + std::to_string(number); }
  Ballot vote(std::int64_t number, const Ballot& ballot) const;
  void run();
};

Ballot StoreVotes::State::vote(std::int64_t number, const Ballot& ballot) const {
  const std::string name = name_of(number);
  // All have read the result before this one, or they would not vote again.
  if (bring(*store, name, rank, world_size, text_of(ballot), largest_of) && number > 0) {
    forget(*store, name_of(number - 1));
  }
  if (const auto largest = ballot_in(waits->await(gathered(name)))) return *largest;
  throw StoreFailed("a rank has ended its votes");
}

void StoreVotes::State::run() {
  MutexLock lock(mutex);
  while (!failure) {
    wake.wait(mutex, [this]() HOLDFAST_REQUIRES(mutex) { return ended || mine; });
    if (ended) return;
    const Ballot ballot = *std::exchange(mine, std::nullopt);
    const std::int64_t number = round;
    lock.unlock();
    std::optional<Ballot> largest;
    std::exception_ptr failed;
    try {
      largest = vote(number, ballot);
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
    lock.lock();
    result = largest;
    failure = failed;
    wake.notify_all();
  }
}

StoreVotes::StoreVotes(std::shared_ptr<RankStore> store, std::shared_ptr<RankStore> waits, std::string prefix,
                       int rank, int world_size, std::shared_ptr<const Alarm> alarm)
    : state_(std::make_shared<State>(std::move(store), std::move(waits), std::move(prefix), rank, world_size,
                                     std::move(alarm))) {
  const BlockSignals block;
  // Detached: end() waits only a moment, and the thread shares the state.
  std::thread([state = state_] {
    state->run();
    const MutexLock lock(state->mutex);
    state->running = false;
    state->wake.notify_all();
  }).detach();
}

void StoreVotes::post(const Ballot& mine) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  if (state.pending) throw UsageError("a ballot was posted while another is pending");
  state.pending = true;
  state.mine = mine;
  state.newest = mine;
  state.wake.notify_all();
}

std::optional<Ballot> StoreVotes::result(Duration limit) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  if (!state.pending) throw UsageError("no ballot is pending");
  const SteadyTime end = Clock::real().now() + limit;
  while (!state.result) {
    if (state.failure) std::rethrow_exception(state.failure);
    // The store does not see a rank that is stopped or out of reach; the signs of life do.
    if (state.alarm->rank) throw StoreClosed("no sign of life");
    const Duration left = end - Clock::real().now();
    if (left <= Duration::zero()) return std::nullopt;
    // In short waits, so that a rank that fell silent ends this one soon.
    state.wake.wait_for(state.mutex, std::min(left, kLookAtSigns),
                        [&state]() HOLDFAST_REQUIRES(state.mutex) { return state.result || state.failure; });
  }
  state.pending = false;
  ++state.round;
  return std::exchange(state.result, std::nullopt);
}

std::function<std::string()> StoreVotes::account() const {
  return [state = state_] {
    const MutexLock lock(state->mutex);
    if (!state->newest) return std::string("votes: none yet\n");
    const std::string step = std::to_string(agreed_by(*state->newest, state->world_size).step);
    const std::string number = std::to_string(state->round - (state->pending ? 0 : 1));
    return "votes: this rank's newest is number " + number + ", at step " + step +
           (state->pending && !state->result ? ", and it has no result yet\n" : ", and it has its result\n");
  };
}

void StoreVotes::end() noexcept {
  State& state = *state_;
  std::int64_t number = 0;
  {
    const MutexLock lock(state.mutex);
    if (state.ended.exchange(true)) return;
    number = state.round;
    state.wake.notify_all();
  }
  try {
    // Others may wait for this rank's ballot.
    within(kLastWord,
           [state = state_, key = gathered(state.name_of(number))] {
             if (!state->store->peek(key)) state->store->set(key, "");
           },
           {.hopeless = &state.alarm->store});
  } catch (const std::exception&) {  // the signs of life end their waits
  }
  const MutexLock lock(state.mutex);
  state.wake.wait_for(state.mutex, kLastWord,
                      [&state]() HOLDFAST_REQUIRES(state.mutex) { return !state.running; });
}

}}  // namespace holdfast::v0_2
