// The votes of a run's ranks over its store: each rank brings a ballot, and the one that brings the last
// writes the largest of each number, which all read.
//
//   StoreVotes votes(store, waits, "votes/0/", rank, world_size, alarm);
//   votes.post(ballot);                // does not wait
//   auto result = votes.result(limit); // nullopt: still pending
//
// Errors: StoreClosed if the store or a rank is lost, StoreFailed if a rank has ended its votes; UsageError
// for a second ballot. Threads: one; end() any. Costs a thread, which is left behind if it waits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT StoreVotes {
 public:
  // `prefix` belongs to these votes alone. `waits`: another connection to the store, used for nothing else.
  StoreVotes(std::shared_ptr<RankStore> store, std::shared_ptr<RankStore> waits, std::string prefix, int rank,
             int world_size, std::shared_ptr<const Alarm> alarm);
  ~StoreVotes() { end(); }
  StoreVotes(const StoreVotes&) = delete;
  StoreVotes& operator=(const StoreVotes&) = delete;

  void post(const Ballot& mine);
  std::optional<Ballot> result(Duration limit);
  // Tells, in one line for a person, where these votes stand. It may be called from any thread, also after
  // this object's end.
  std::function<std::string()> account() const;
  // Ends the votes of all ranks, except those that have a result.
  void end() noexcept;

 private:
  struct State;

  const std::shared_ptr<State> state_;
};

}}  // namespace holdfast::v0_2
