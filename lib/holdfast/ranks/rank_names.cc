#include "holdfast/ranks/rank_names.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {

std::string ranks_in_words(std::span<const int> ranks) {
  // A message must stay readable when a whole host of ranks is lost.
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = std::min(ranks.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > shown) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

std::vector<std::string> keys_of_ranks(const std::string& stem, int world_size) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(stem + "/" + std::to_string(rank));
  return keys;
}

}}  // namespace holdfast::v0_2
