#include "holdfast/ranks/roll_call.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/ranks/rank_names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// A rank in the middle of a step answers when its thread gets the processor, which may take seconds.
constexpr Duration kToAnswer = 4s;
constexpr Duration kNoSign = 2s;  // without a sign, for a rank that did not answer
constexpr Duration kToHear = 1s;  // until the others' threads have read which ranks give no sign

std::vector<int> both(const std::vector<int>& some, const std::vector<int>& others) {
  std::vector<int> found;
  std::copy_if(some.begin(), some.end(), std::back_inserter(found),
               [&](int rank) { return std::find(others.begin(), others.end(), rank) != others.end(); });
  return found;
}

std::string died(const std::vector<int>& ranks) {
  return ranks_in_words(ranks) + " died, hangs or cannot be reached: no sign of life";
}

}  // namespace

RollCall::RollCall(StoreLine line, std::weak_ptr<const Pulse> pulse, int rank, int world_size)
    : line_(std::move(line)), pulse_(std::move(pulse)), rank_(rank), world_size_(world_size) {
  // The run has failed already, so the roll call must be short and must not be ended by a signal.
  line_.shorten_limit();
  line_.heed_stop(false);
}

std::string RollCall::who() {
  // Called once: all threads that failed get the same answer.
  const MutexLock lock(mutex_);
  if (who_.empty()) who_ = call(pulse_.lock().get());
  return who_;
}

std::string RollCall::call(const Pulse* pulse) {
  const auto verdict = [&] { return pulse != nullptr ? pulse->lost() : std::vector<int>{}; };
  std::vector<int> lost = verdict();
  std::string named;
  try {
    // This rank answers first: the others make the same call at this moment. A rank that has lost rank 0 does
    // not: through a network that is cut one way the answer would arrive, and rank 0 would name nobody.
    if (lost.empty() || lost.front() != 0) line_.bring("alive", rank_, world_size_);
    // With a verdict nobody has to be waited for.
    const auto absent = line_.absent("alive", world_size_, lost.empty() ? kToAnswer : Duration(0));
    if (lost.empty()) lost = verdict();  // a verdict that came meanwhile
    named = name(pulse, lost, absent);
    lost.insert(lost.end(), absent.begin(), absent.end());
    let_all_hear(lost);
  } catch (const SilentStore& silent) {
    if (!named.empty()) return named;
    // Rank 0 may have left because of another rank's loss. Then the signs of life name that rank.
    if (lost.empty() && pulse != nullptr) lost = pulse->verdict();
    if (!lost.empty()) return died(lost);
    return "rank 0 ended, hangs or cannot be reached (" + std::string(silent.what()) + " from its store)";
  }
  return named;
}

std::string RollCall::name(const Pulse* pulse, const std::vector<int>& lost, const std::vector<int>& absent) {
  // A silent rank counts if it did not answer either: an answer proves life.
  const std::vector<int> suspects = lost.empty() ? absent : both(lost, absent);
  if (suspects.empty() && lost.empty()) return "all ranks answer, but a connection between them broke";
  // They left because of what they noticed, or the network only lets their messages through.
  if (suspects.empty()) {
    return ranks_in_words(lost) +
           " left, hangs or cannot be reached: a loss was noticed there, and no sign came since";
  }
  std::vector<int> gone;
  for (const int rank : suspects) {
    // A rank that ends by its own error leaves this key, and its log has the reason.
    if (line_.peek(gone_key(rank))) gone.push_back(rank);
  }
  if (!gone.empty()) return ranks_in_words(gone) + " ended with an error of its own (its log says which)";
  if (!lost.empty()) return died(suspects);
  std::vector<int> silent;
  if (pulse != nullptr) silent = both(pulse->silent_for(kNoSign), suspects);
  if (pulse != nullptr && silent.empty()) silent = both(pulse->verdict(), suspects);
  if (!silent.empty()) return died(silent);
  return "a connection broke, and no answer came from " + ranks_in_words(suspects) + " (busy otherwise?)";
}

void RollCall::let_all_hear(const std::vector<int>& deaf) {
  line_.bring("told", rank_, world_size_);
  // Rank 0's process is the store. It stays until the others have read what they need.
  if (rank_ != 0) return;
  std::vector<int> readers;
  for (int rank = 1; rank < world_size_; ++rank) {
    if (std::find(deaf.begin(), deaf.end(), rank) == deaf.end()) readers.push_back(rank);
  }
  if (!readers.empty()) line_.absent("told", readers, kToAnswer, /*loss_is_known=*/true);
  if (world_size_ > 1) std::this_thread::sleep_for(kToHear);
}

}}  // namespace holdfast::v0_2
