#include "holdfast/distributed/internal/pulse.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/store_client.h"

namespace holdfast { inline namespace v1 {
namespace {

// Factor for the time until a rank's first sign: it may still be loading its GPU's libraries.
constexpr int kPatienceAtFirst = 5;
// Polls. Rank 0 acts later than it tells the others, because its store may end with it and they must learn
// the reason.
constexpr int kLooksToTell = 2;
constexpr auto kLastBeat = std::chrono::seconds(2);
// Layout of a beat's number (pulse.h).
constexpr std::int64_t kLookOfStanding = std::int64_t{1} << 32;
constexpr std::int64_t kCall = std::int64_t{1} << 47;
constexpr std::int64_t kMostLooksOfStanding = kCall / kLookOfStanding - 1;

// Signals are for the threads that handle them.
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

  // Used by the beating thread only.
  std::vector<std::string> keys;
  std::vector<std::string> counts;  // rank 0: as last read
  std::vector<int> unmoved;         // rank 0: polls since the last change
  std::string told;                 // rank 0: the text that it last wrote
  std::int64_t beats = 0;           // rank 0
  std::int64_t signs = 0;

  std::atomic<std::int64_t> standing{0};  // polls for which this machine may stand still
  std::atomic<bool> calls{false};
  std::atomic<bool> called{false};  // rank 0: another rank calls

  std::mutex mutex;
  std::condition_variable wake;
  bool ended = false;
  int running = 0;           // threads
  bool closed = false;       // the connection to the store
  std::uint64_t rounds = 0;  // rounds of the beating thread in which rank 0 gave a sign
  int idle = 0;              // polls of the judging thread without a sign of rank 0
  std::map<int, int> looks;  // as rank 0 tells: rank -> polls without change
  int bear = 0;              // announced polls of silence, of any rank
  std::vector<int> lost;

  std::string key(const std::string& name) const { return prefix + name; }
  void look_at_all();
  void hear();
  void learn(std::map<int, int> found, int announced);
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
  // Rank 0 may have left because of another rank's silence, which its last text names.
  int longest_silence() const {
    int longest = 0;
    for (const auto& [who, count] : looks) longest = std::max(longest, count);
    return std::max({options.looks / 3, longest - kLooksToTell, 1});
  }
};

// Handles a sign of rank 0.
void Pulse::State::learn(std::map<int, int> found, int announced) {
  const std::lock_guard lock(mutex);
  ++rounds;
  looks = std::move(found);
  if (std::exchange(bear, announced) == announced) return;
  log_info("{}: ranks may be silent for {}",
           announced > 0 ? "a machine is about to stand still" : "no machine stands still any more",
           format_duration((options.looks + announced) * options.period));
}

void Pulse::State::look_at_all() {
  std::vector<std::string> now;
  now.reserve(keys.size());
  if (store->hasExtendedApi()) {
    for (const auto& bytes : store->multiGet(keys)) now.emplace_back(bytes.begin(), bytes.end());
  } else {
    for (const std::string& one : keys) now.push_back(std::to_string(store->add(one, 0)));
  }
  std::int64_t announced = 0;
  bool somebody_calls = false;
  for (const std::string& one : now) {
    const std::int64_t count = std::stoll(one);
    announced = std::max(announced, count % kCall / kLookOfStanding);
    somebody_calls = somebody_calls || (count >= kCall && &one != &now.front());
  }
  called = somebody_calls;
  const int bears = static_cast<int>(announced);
  std::map<int, int> found;
  std::string text = std::to_string(++beats) + " " + std::to_string(bears);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const bool moved = now[i] != counts[i];
    // A rank that withdraws its announcement is awake; other ranks of its machine may wake a little later.
    unmoved[i] = moved ? 0 : std::min(unmoved[i], bears < bear ? 0 : unmoved[i]) + 1;
    counts[i] = now[i];
    const int beyond = unmoved[i] - bears;
    if (i == 0 || beyond < 1) continue;
    found[static_cast<int>(i)] = beyond;
    text += " " + std::to_string(i) + ":" + std::to_string(beyond);
  }
  store->set(key("pulse"), bytes_of(text));
  learn(std::move(found), bears);
}

void Pulse::State::hear() {
  if (told.empty() && !store->check({key("pulse")})) return;
  std::string text = store->get_to_str(key("pulse"));
  // An unchanged text is no sign of rank 0.
  if (text == told) return;
  told = std::move(text);
  std::istringstream words(told);
  std::string word;
  int announced = 0;
  words >> word >> announced;
  std::map<int, int> found;
  int who = 0;
  char colon = 0;
  for (int count = 0; words >> who >> colon >> count;) found[who] = count;
  learn(std::move(found), announced);
}

void Pulse::State::beat() {
  auto* const own_store = dynamic_cast<StoreClient*>(store.get());
  try {
    // The server sets this key when the connection ends, so a dead process is noticed at once.
    if (own_store != nullptr) own_store->make_will(key("died/" + std::to_string(rank)), "");
    if (rank == 0) {
      if (store->hasExtendedApi()) {
        store->multiSet(keys, std::vector<std::vector<std::uint8_t>>(keys.size(), bytes_of("0")));
      } else {
        for (const std::string& one : keys) store->add(one, 0);
      }
      counts.assign(keys.size(), "0");
      // Negative: a rank that has given no sign yet gets kPatienceAtFirst times as long.
      unmoved.assign(keys.size(), -options.looks * (kPatienceAtFirst - 1));
    }
    while (true) {
      // Writes the whole number, not a difference: rank 0 may overwrite a first sign with its initial zeros.
      const std::int64_t sign = ++signs + standing * kLookOfStanding + (calls ? kCall : 0);
      store->set(keys[static_cast<std::size_t>(rank)], bytes_of(std::to_string(sign)));
      rank == 0 ? look_at_all() : hear();
      std::unique_lock lock(mutex);
      if (!pause(lock)) break;
    }
    if (own_store != nullptr) own_store->withdraw_will();
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
    // With the connection closed rank 0 has left, perhaps because of the silence that its last text tells.
    lost = silent(closed ? longest_silence() : enough);
    if (idle >= options.looks + bear || (closed && lost.empty())) lost = {0};
    if (lost.empty()) continue;
    // Ranks of one vanished host fall silent together, but their counts differ by a poll or two. So the
    // verdict includes them.
    if (!closed && lost.front() != 0) lost = silent(enough - kLooksToTell);
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

void Pulse::expect_silence(Duration longest) noexcept {
  state_->standing = std::clamp<std::int64_t>(longest / state_->options.period, 0, kMostLooksOfStanding);
}

void Pulse::call(bool so) noexcept { state_->calls = so; }

bool Pulse::called() const noexcept { return state_->called; }

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
  return std::find(lost.begin(), lost.end(), rank) != lost.end() || state_->idle >= enough + state_->bear ||
         (looks != state_->looks.end() && looks->second >= enough);
}

std::vector<int> Pulse::silent_for(Duration duration) const {
  const std::lock_guard lock(state_->mutex);
  return state_->silent(static_cast<int>(std::max<std::int64_t>(duration / state_->options.period, 1)));
}

}}  // namespace holdfast::v1
