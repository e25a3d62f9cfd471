#include "holdfast/ranks/gathering.h"

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string count_of(const std::string& name) { return name + "/count"; }

}  // namespace

bool bring(RankStore& store, const std::string& name, int rank, int world_size, const std::string& text,
           const std::function<std::string(const RankTexts&)>& sum_up) {
  store.append(name, std::to_string(rank) + ' ' + std::to_string(text.size()) + ':' + text);
  // Behind the text, so whoever counts the last one finds all texts.
  if (store.add(count_of(name), 1) != world_size) return false;
  store.set(gathered(name), sum_up ? sum_up(came(store, name)) : "");
  return true;
}

std::string gathered(const std::string& name) { return name + "/all"; }

RankTexts came(RankStore& store, const std::string& name) {
  RankTexts texts;
  const std::string all = store.peek(name).value_or("");
  for (std::size_t at = 0; at < all.size();) {
    const auto space = all.find(' ', at);
    const auto colon = all.find(':', at);
    if (space == std::string::npos || colon == std::string::npos || colon < space) break;
    const auto rank = parse_int(all.substr(at, space - at));
    const auto size = parse_int(all.substr(space + 1, colon - space - 1));
    if (!rank || !size || *size < 0) break;
    texts[static_cast<int>(*rank)] = all.substr(colon + 1, static_cast<std::size_t>(*size));
    at = colon + 1 + static_cast<std::size_t>(*size);
  }
  return texts;
}

void forget(RankStore& store, const std::string& name) {
  for (const std::string& key : {name, count_of(name), gathered(name)}) store.erase(key);
}

}}  // namespace holdfast::v0_2
