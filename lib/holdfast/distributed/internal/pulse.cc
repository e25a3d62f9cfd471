#include "holdfast/distributed/internal/pulse.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

namespace holdfast::inline v1 {
namespace {

// Until a rank's first sign, so many times as long: it may still be loading its GPU's libraries.
constexpr int kPatienceAtFirst = 5;
// Rank 0 acts later than it tells: its store may end with it, and the others are to know why.
constexpr int kLooksToTell = 2;
constexpr auto kLastBeat = std::chrono::seconds(2);

// Signals are for the threads that have asked for them.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

struct Pulse::State {
  c10::intrusive_ptr<c10d::Store> store;
  std::string prefix;
  int rank;
  int world_size;
  PulseOptions options;
  std::function<void()> on_loss;
  const std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();

  // The beating thread alone.
  std::vector<std::string> keys;
  std::vector<std::string> counts;  // rank 0: as they were read last
  std::vector<int> unmoved;         // rank 0: since so many looks
  std::string told;                 // by rank 0, last
  std::int64_t beats = 0;

  std::mutex mutex;
  std::condition_variable wake;
  bool ended = false;
  int running = 0;           // threads
  bool closed = false;       // the connection to the store
  std::uint64_t rounds = 0;  // of the beating thread in which rank 0 showed a sign
  int idle = 0;              // looks of the judging thread without one
  std::map<int, int> looks;  // as rank 0 tells: who has not moved for how many
  std::vector<int> lost;

  std::string key(const std::string& name) const { return prefix + name; }
  bool look_at_all();
  bool hear();
  void beat();
  void judge();
  bool pause(std::unique_lock<std::mutex>& lock) {
    return !wake.wait_for(lock, options.period, [&] { return ended; });
  }
  std::vector<int> silent(int at_least) const {
    std::vector<int> ranks;
    for (const auto& [who, count] : looks) {
      if (count >= at_least) ranks.push_back(who);
    }
    return ranks;
  }
  // Rank 0 may have left because of another's silence, of which it told last; and others before it.
  int longest_silence() const {
    int longest = 0;
    for (const auto& [who, count] : looks) longest = std::max(longest, count);
    return std::max({options.looks / 3, longest - kLooksToTell, 1});
  }
};

bool Pulse::State::look_at_all() {
  std::vector<std::string> now;
  now.reserve(keys.size());
  if (store->hasExtendedApi()) {
    for (const auto& bytes : store->multiGet(keys)) now.emplace_back(bytes.begin(), bytes.end());
  } else {
    for (const std::string& one : keys) now.push_back(std::to_string(store->add(one, 0)));
  }
  std::map<int, int> found;
  std::string text = std::to_string(++beats);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const bool moved = now[i] != counts[i];
    unmoved[i] = moved ? 0 : unmoved[i] + 1;
    counts[i] = now[i];
    if (i == 0 || unmoved[i] < 1) continue;
    found[static_cast<int>(i)] = unmoved[i];
    text += " " + std::to_string(i) + ":" + std::to_string(unmoved[i]);
  }
  store->set(key("pulse"), bytes_of(text));
  const std::lock_guard lock(mutex);
  looks = std::move(found);
  return true;
}

// False: rank 0 has said nothing new.
bool Pulse::State::hear() {
  if (told.empty() && !store->check({key("pulse")})) return false;
  std::string text = store->get_to_str(key("pulse"));
  if (text == told) return false;
  told = std::move(text);
  std::istringstream words(told);
  std::string word;
  words >> word;
  std::map<int, int> found;
  int who = 0;
  char colon = 0;
  for (int count = 0; words >> who >> colon >> count;) found[who] = count;
  const std::lock_guard lock(mutex);
  looks = std::move(found);
  return true;
}

void Pulse::State::beat() {
  try {
    if (rank == 0) {
      if (store->hasExtendedApi()) {
        store->multiSet(keys, std::vector<std::vector<std::uint8_t>>(keys.size(), bytes_of("0")));
      } else {
        for (const std::string& one : keys) store->add(one, 0);
      }
      counts.assign(keys.size(), "0");
      unmoved.assign(keys.size(), -options.looks * (kPatienceAtFirst - 1));
    }
    while (true) {
      store->add(keys[static_cast<std::size_t>(rank)], 1);
      const bool sign = rank == 0 ? look_at_all() : hear();
      std::unique_lock lock(mutex);
      if (sign) ++rounds;
      if (!pause(lock)) break;
    }
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex);
    closed = true;
    wake.notify_all();
  }
}

void Pulse::State::judge() {
  std::unique_lock lock(mutex);
  idle = -options.looks * (kPatienceAtFirst - 1);
  const int enough = options.looks + (rank == 0 ? kLooksToTell : 0);
  for (std::uint64_t seen = 0; pause(lock);) {
    idle = rounds == seen ? idle + 1 : 0;
    seen = rounds;
    if (!lost.empty()) continue;
    lost = silent(closed ? longest_silence() : enough);
    if (idle >= options.looks || (closed && lost.empty())) lost = {0};
    if (lost.empty()) continue;
    alarm->store = closed || lost.front() == 0;
    alarm->rank = true;
    wake.notify_all();
    lock.unlock();
    if (on_loss) on_loss();
    lock.lock();
  }
}

Pulse::Pulse(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int world_size,
             PulseOptions options, std::function<void()> on_loss)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->prefix = std::move(prefix);
  state_->rank = rank;
  state_->world_size = world_size;
  state_->options = options;
  state_->on_loss = std::move(on_loss);
  for (int other = 0; other < world_size; ++other) {
    state_->keys.push_back(state_->key("beat/" + std::to_string(other)));
  }
  alarm_ = state_->alarm;
  try {
    for (void (State::*const work)() : {&State::beat, &State::judge}) {
      {
        const std::lock_guard lock(state_->mutex);
        ++state_->running;
      }
      std::thread([state = state_, work] {
        block_signals();
        (state.get()->*work)();
        const std::lock_guard lock(state->mutex);
        --state->running;
        state->wake.notify_all();
      }).detach();
    }
  } catch (...) {
    end();
    throw;
  }
}

Pulse::~Pulse() { end(); }

void Pulse::end() noexcept {
  std::unique_lock lock(state_->mutex);
  state_->ended = true;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kLastBeat, [&] { return state_->running == 0; });
}

std::vector<int> Pulse::lost() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

std::vector<int> Pulse::verdict() const {
  std::unique_lock lock(state_->mutex);
  const Duration limit = (state_->options.looks + kLooksToTell + 2) * state_->options.period;
  state_->wake.wait_for(lock, limit, [&] { return !state_->lost.empty() || state_->ended; });
  return state_->lost;
}

bool Pulse::fell_silent(int rank) const {
  const std::lock_guard lock(state_->mutex);
  const auto& lost = state_->lost;
  if (lost.empty()) return false;
  const auto looks = state_->looks.find(rank);
  const int enough = state_->options.looks;
  return std::find(lost.begin(), lost.end(), rank) != lost.end() || state_->idle >= enough ||
         (looks != state_->looks.end() && looks->second >= enough);
}

std::vector<int> Pulse::silent_for(Duration duration) const {
  const std::lock_guard lock(state_->mutex);
  return state_->silent(static_cast<int>(std::max<std::int64_t>(duration / state_->options.period, 1)));
}

}  // namespace holdfast::inline v1
