#include "holdfast/ranks/signs_of_life.h"

#include <algorithm>
#include <locale>
#include <sstream>
#include <utility>

namespace holdfast { inline namespace v0_2 {
namespace {

// Factor for the time until a rank's first sign: it may still be loading its GPU's libraries.
constexpr int kPatienceAtFirst = 5;
// Polls. Ranks of one vanished host fall silent together, but their counts differ by a poll. So a verdict
// comes that much later, and names all that are lost by then. It never names a rank that has been silent for
// less.
constexpr int kLooksToGather = 1;
// One number carries the count (32 bits), the polls of standing still (15 bits) and the call (1 bit).
constexpr std::int64_t kLookOfStanding = std::int64_t{1} << 32;
constexpr std::int64_t kCall = std::int64_t{1} << 47;

// Negative: a rank that has given no sign yet gets kPatienceAtFirst times as long.
int at_first(int looks) { return -looks * (kPatienceAtFirst - 1); }

}  // namespace

std::int64_t sign_of(std::int64_t count, std::int64_t standing, bool calls) {
  return count + standing * kLookOfStanding + (calls ? kCall : 0);
}

// The call's bit is the first that the announcement must not touch.
std::int64_t most_polls_of_standing() { return kCall / kLookOfStanding - 1; }

std::string text_of(const Tale& tale, std::int64_t count) {
  std::string text = std::to_string(count) + " " + std::to_string(tale.announced);
  // A line of words, because the store keeps texts and this one changes at every look.
  for (const auto& [rank, polls] : tale.silent)
    text += " " + std::to_string(rank) + ":" + std::to_string(polls);
  return text;
}

Tale tale_of(const std::string& text) {
  std::istringstream words(text);
  // A locale of the program may group digits by spaces, and two numbers would then be one.
  words.imbue(std::locale::classic());
  std::string count;
  Tale tale;
  words >> count >> tale.announced;
  int rank = 0;
  char colon = 0;
  for (int polls = 0; words >> rank >> colon >> polls;) tale.silent[rank] = polls;
  return tale;
}

SignTable::SignTable(int world_size, int looks)
    : signs_(static_cast<std::size_t>(world_size), "0"),
      unmoved_(static_cast<std::size_t>(world_size), at_first(looks)) {}

Tale SignTable::poll(const std::vector<std::string>& signs) {
  Tale tale;
  for (std::size_t i = 0; i < signs.size(); ++i) {
    const std::int64_t sign = std::stoll(signs[i]);
    tale.announced = std::max(tale.announced, static_cast<int>(sign % kCall / kLookOfStanding));
    tale.called = tale.called || (sign >= kCall && i > 0);
  }
  for (std::size_t i = 0; i < signs.size(); ++i) {
    const bool moved = signs[i] != signs_[i];
    // A rank that withdraws its announcement is awake; other ranks of its machine may wake a little later.
    unmoved_[i] = moved ? 0 : std::min(unmoved_[i], tale.announced < announced_ ? 0 : unmoved_[i]) + 1;
    signs_[i] = signs[i];
    // An announced silence is not counted as one.
    const int beyond = unmoved_[i] - tale.announced;
    // Rank 0 writes this tale itself, so it cannot be silent in it.
    if (i > 0 && beyond >= 1) tale.silent[static_cast<int>(i)] = beyond;
  }
  announced_ = tale.announced;
  return tale;
}

SilenceJudge::SilenceJudge(int rank, int looks, int tale_every, int looks_to_tell)
    : looks_(looks),
      looks_to_tell_(looks_to_tell),
      enough_(looks + kLooksToGather + (rank == 0 ? looks_to_tell : 0)),
      enough_of_rank_0_(looks + 2 * (tale_every - 1)),
      idle_(at_first(looks)) {}

void SilenceJudge::learn(Tale tale) {
  heard_ = true;
  tale_ = std::move(tale);
}

bool SilenceJudge::poll(bool closed) {
  idle_ = std::exchange(heard_, false) ? 0 : idle_ + 1;
  return decide(closed);
}

bool SilenceJudge::decide(bool closed) {
  // A verdict is final: what comes later must not change the names.
  if (!lost_.empty()) return false;
  // With the connection closed rank 0 has left, perhaps because of the silence that its last tale tells.
  lost_ = silent(closed ? longest_silence() : enough_);
  // A closed connection without a silent rank means that rank 0 itself is gone.
  if (idle_ >= enough_of_rank_0_ + tale_.announced || (closed && lost_.empty())) lost_ = {0};
  if (lost_.empty()) return false;
  // With the verdict all that fell silent together are named, also those one look behind.
  if (!closed && lost_.front() != 0) lost_ = silent(enough_ - kLooksToGather);
  store_is_lost_ = closed || lost_.front() == 0;
  return true;
}

bool SilenceJudge::fell_silent(int rank) const {
  if (lost_.empty()) return false;
  const auto found = tale_.silent.find(rank);
  return std::find(lost_.begin(), lost_.end(), rank) != lost_.end() ||
         idle_ >= enough_of_rank_0_ + tale_.announced ||
         (found != tale_.silent.end() && found->second >= looks_);
}

std::vector<int> SilenceJudge::silent(int at_least) const {
  std::vector<int> ranks;
  for (const auto& [rank, polls] : tale_.silent) {
    if (polls >= at_least) ranks.push_back(rank);
  }
  return ranks;
}

// Rank 0 may have left because of another rank's silence, which its last tale names.
int SilenceJudge::longest_silence() const {
  int longest = 0;
  for (const auto& [rank, polls] : tale_.silent) longest = std::max(longest, polls);
  return std::max({looks_ / 3, longest - looks_to_tell_, 1});
}

int SilenceJudge::polls_to_verdict() const { return looks_ + kLooksToGather + looks_to_tell_ + 2; }

}}  // namespace holdfast::v0_2
