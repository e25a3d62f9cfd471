#include "holdfast/ranks/rank_store.h"

#include <algorithm>
#include <thread>

namespace holdfast { inline namespace v0_2 {

using namespace std::chrono_literals;

void RankStore::set_all(const std::vector<std::string>& keys, const std::string& value) {
  for (const std::string& key : keys) set(key, value);
}

std::vector<std::string> RankStore::missing(const std::vector<std::string>& keys, Duration limit,
                                            const std::function<bool()>& give_up) {
  // More keys mean more ranks that poll, so the pause grows with them.
  const Duration longest = 50ms + 250us * keys.size();
  const SteadyTime end = Clock::real().now() + limit;
  for (Duration pause = 1ms; !check(keys); pause = std::min<Duration>(2 * pause, longest)) {
    if (Clock::real().now() < end && !give_up()) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    // Asked one by one only at the end: one question for all keys is cheaper as long as something is
    // missing.
    std::vector<std::string> missed;
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(missed),
                 [&](const std::string& key) { return !check({key}); });
    return missed;
  }
  return {};
}

std::optional<std::string> RankStore::swap(const std::string& key, const std::string& value,
                                           const std::string& read) {
  set(key, value);
  if (!check({read})) return std::nullopt;
  return get({read}).at(0);
}

}}  // namespace holdfast::v0_2
