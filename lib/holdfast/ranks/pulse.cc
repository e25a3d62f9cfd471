#include "holdfast/ranks/pulse.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/signs_of_life.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A thread may be in a call to a store that does not answer; leaving it behind is better than to wait.
constexpr auto kLastBeat = std::chrono::seconds(2);
// With more ranks signs come less often, so that rank 0 serves about as many a second.
constexpr int kRanksOfPeriod = 512;
constexpr Duration kLongestPeriod = std::chrono::seconds(2);
constexpr int kFewestLooks = 6;

}  // namespace

PulseOptions pulse_options(int world_size, Duration silence) {
  PulseOptions options;
  // All ranks compute the same period, because they count silence in looks.
  options.period =
      std::min(options.period * ((world_size + kRanksOfPeriod - 1) / kRanksOfPeriod), kLongestPeriod);
  options.looks = static_cast<int>(std::clamp<std::int64_t>(silence / options.period, 1, 1'000'000));
  // Fewer answers and earlier tales keep the time until a verdict short although signs are rarer.
  if (world_size > kRanksOfPeriod) {
    options.looks = std::max(options.looks, kFewestLooks);
    options.answer_every = 2;
    options.looks_to_tell = 1;
  }
  return options;
}

struct Pulse::State {
  State(std::shared_ptr<RankStore> the_store, std::string the_prefix, int the_rank, int world_size,
        PulseOptions the_options, std::function<void()> callback)
      : store(std::move(the_store)),
        prefix(std::move(the_prefix)),
        rank(the_rank),
        options(the_options),
        on_loss(std::move(callback)),
        keys(keys_of_ranks(prefix + "beat", world_size)),
        table(world_size, options.looks),
        judge(rank, options.looks, options.answer_every, options.looks_to_tell) {}

  const std::shared_ptr<RankStore> store;
  const std::string prefix;
  const int rank;
  const PulseOptions options;
  const std::function<void()> on_loss;
  const std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();

  // Used by the beating thread only.
  const std::vector<std::string> keys;
  SignTable table;   // rank 0
  std::string told;  // the text that rank 0 last wrote
  std::int64_t looks = 0;
  std::int64_t signs = 0;

  std::atomic<std::int64_t> standing{0};  // polls for which this machine may stand still
  std::atomic<bool> calls{false};
  std::atomic<bool> called{false};  // rank 0: another rank calls

  Mutex mutex;
  CondVar wake;
  bool ended HOLDFAST_GUARDED_BY(mutex) = false;
  int running HOLDFAST_GUARDED_BY(mutex) = 0;      // threads
  bool closed HOLDFAST_GUARDED_BY(mutex) = false;  // the connection to the store
  bool news HOLDFAST_GUARDED_BY(mutex) = false;    // a tale that the judge has not weighed
  SilenceJudge judge HOLDFAST_GUARDED_BY(mutex);

  void give_sign() {
    store->set(keys[static_cast<std::size_t>(rank)], std::to_string(sign_of(++signs, standing, calls)));
  }
  // By the constructor, not by a thread, which a busy machine may start late: a rank that met the others has
  // then given a sign, so its silence counts at once. A store that fails here fails in beat(), too.
  void give_first_sign() noexcept {
    try {
      give_sign();
    } catch (const std::exception&) {
    }
  }
  void look_at_all();
  void hear(const std::optional<std::string>& text);
  void learn(Tale tale);
  void beat();
  void watch();
  bool suspects() HOLDFAST_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return judge.suspects();
  }
  bool pause_until(SteadyTime end) HOLDFAST_REQUIRES(mutex) {
    return !wake.wait_for(mutex, end - Clock::real().now(),
                          [this]() HOLDFAST_REQUIRES(mutex) { return ended; });
  }
};

// Handles a sign of rank 0.
void Pulse::State::learn(Tale tale) {
  const MutexLock lock(mutex);
  const int before = judge.announced();
  judge.learn(std::move(tale));
  news = true;
  wake.notify_all();
  const int announced = judge.announced();
  if (before == announced) return;
  log_info("{}: ranks may be silent for {}",
           announced > 0 ? "a machine is about to stand still" : "no machine stands still any more",
           format_duration((options.looks + announced) * options.period));
}

void Pulse::State::look_at_all() {
  Tale tale = table.poll(store->get(keys));
  called = tale.called;
  store->set(prefix + "pulse", text_of(tale, ++looks));
  learn(std::move(tale));
}

void Pulse::State::hear(const std::optional<std::string>& text) {
  // An unchanged text is no sign of rank 0.
  if (!text || *text == told) return;
  told = *text;
  learn(tale_of(told));
}

void Pulse::State::beat() {
  try {
    // Makes the keys that are missing, because get() requires them. A sign that was given already stays.
    if (rank == 0) {
      for (const std::string& key : keys) store->add(key, 0);
    }
    while (true) {
      // From sign to sign, not from an answer to the next sign: a slow link must not make signs rare.
      const SteadyTime next = Clock::real().now() + options.period;
      const bool asks = signs % options.answer_every == 0 || suspects();
      give_sign();
      if (rank == 0) {
        look_at_all();
      } else if (asks) {
        hear(store->peek(prefix + "pulse"));
      }
      const MutexLock lock(mutex);
      if (!pause_until(next)) break;
    }
  } catch (const std::exception&) {
    const MutexLock lock(mutex);
    closed = true;
    wake.notify_all();
  }
}

// A thread of its own: the beating one may wait for the store while rank 0 is lost.
void Pulse::State::watch() {
  MutexLock lock(mutex);
  SteadyTime next = Clock::real().now() + options.period;
  while (!ended) {
    wake.wait_for(mutex, next - Clock::real().now(),
                  [this]() HOLDFAST_REQUIRES(mutex) { return ended || news; });
    if (ended) break;
    // A poll counts, a tale does not: a process that was stopped has missed polls itself.
    const bool counts = !std::exchange(news, false);
    if (counts) next = Clock::real().now() + options.period;
    if (!(counts ? judge.poll(closed) : judge.decide(closed))) continue;
    alarm->store = judge.store_is_lost();
    alarm->rank = true;
    wake.notify_all();
    // Without the lock, because the callback may ask this object.
    lock.unlock();
    if (on_loss) on_loss();
    lock.lock();
  }
}

Pulse::Pulse(std::shared_ptr<RankStore> store, std::string prefix, int rank, int world_size,
             PulseOptions options, std::function<void()> on_loss)
    : state_(std::make_shared<State>(std::move(store), std::move(prefix), rank, world_size, options,
                                     std::move(on_loss))),
      alarm_(state_->alarm) {
  try {
    const BlockSignals block;
    state_->give_first_sign();
    for (void (State::*const work)() : {&State::beat, &State::watch}) {
      {
        const MutexLock lock(state_->mutex);
        ++state_->running;
      }
      // Detached: end() waits only a moment, and the threads share the state.
      std::thread([state = state_, work] {
        (state.get()->*work)();
        const MutexLock lock(state->mutex);
        --state->running;
        state->wake.notify_all();
      }).detach();
    }
  } catch (...) {
    // The first thread may run already, so it is told to end.
    end();
    throw;
  }
}

Pulse::~Pulse() { end(); }

void Pulse::expect_silence(Duration longest) noexcept {
  state_->standing = std::clamp<std::int64_t>(longest / state_->options.period, 0, most_polls_of_standing());
}

void Pulse::call(bool so) noexcept { state_->calls = so; }

bool Pulse::called() const noexcept { return state_->called; }

void Pulse::end() noexcept {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  state.ended = true;
  state.wake.notify_all();
  state.wake.wait_for(state.mutex, kLastBeat,
                      [&state]() HOLDFAST_REQUIRES(state.mutex) { return state.running == 0; });
}

std::vector<int> Pulse::lost() const {
  const MutexLock lock(state_->mutex);
  return state_->judge.lost();
}

std::vector<int> Pulse::verdict() const {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  // A verdict may be one or two looks away; after that there is none to come.
  const Duration limit = state.judge.polls_to_verdict() * state.options.period;
  state.wake.wait_for(state.mutex, limit, [&state]() HOLDFAST_REQUIRES(state.mutex) {
    return !state.judge.lost().empty() || state.ended;
  });
  return state.judge.lost();
}

bool Pulse::fell_silent(int rank) const {
  const MutexLock lock(state_->mutex);
  return state_->judge.fell_silent(rank);
}

std::string Pulse::account() const {
  const MutexLock lock(state_->mutex);
  const Duration period = state_->options.period;
  const auto since = [&](int polls) { return format_duration(polls * period); };
  std::string text = "signs of life, as rank 0 told them " + since(state_->judge.idle()) + " ago: ";
  const std::map<int, int>& silent = state_->judge.tale().silent;
  for (const auto& [rank, polls] : silent) {
    text += "none of rank " + std::to_string(rank) + " for " + since(polls) + "; ";
  }
  return text + (silent.empty() ? "all ranks live\n" : "the others live\n");
}

std::vector<int> Pulse::silent_for(Duration duration) const {
  const MutexLock lock(state_->mutex);
  return state_->judge.silent(static_cast<int>(std::max<std::int64_t>(duration / state_->options.period, 1)));
}

}}  // namespace holdfast::v0_2
