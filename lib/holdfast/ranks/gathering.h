// One text of each rank, gathered in a run's store. The texts lie behind each other under one key, so who
// waits for all ranks asks for one key, however many they are:
//
//   bring(store, "exchange/3", rank, world_size, text);
//   store.wait(gathered("exchange/3"), limit, give_up);   // there when all have brought theirs
//   came(store, "exchange/3")                             // rank -> text
//
// Keys: <name>: the texts; <name>/count; <name>/all: the last rank's sum of them.
//
// Errors: as RankStore; came() ignores what it cannot read. Threads: any.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

using RankTexts = std::map<int, std::string>;  // by rank; of two of one rank the newer

// Once for each rank and name. The last rank sets gathered(name) to `sum_up` of all texts (nullptr: empty)
// and returns true.
HOLDFAST_EXPORT bool bring(RankStore& store, const std::string& name, int rank, int world_size,
                           const std::string& text,
                           const std::function<std::string(const RankTexts&)>& sum_up = nullptr);
HOLDFAST_EXPORT std::string gathered(const std::string& name);
HOLDFAST_EXPORT RankTexts came(RankStore& store, const std::string& name);
// When nobody reads it any more.
HOLDFAST_EXPORT void forget(RankStore& store, const std::string& name);

}}  // namespace holdfast::v0_2
