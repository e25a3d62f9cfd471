// The votes of a run's ranks over its store: each rank sends a ballot, and the store answers all with the
// largest of each number when it has one of every rank (ballot_box.h). A thousand ranks cost a thousand
// connections, where an all-gather needs one between every two.
//
//   VoteLine votes(connection, "agreement", world_size);
//   votes.join(limit);                 // returns when all have joined
//   votes.post(ballot);                // does not wait
//   auto result = votes.result(limit); // nullopt: still pending
//
// Errors: StoreClosed; StoreFailed if the connection of a rank has ended; UsageError for a second ballot.
// Threads: one; shut() any.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/store_connection.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT VoteLine {
 public:
  // `connection` must not be shared.
  VoteLine(std::shared_ptr<StoreConnection> connection, std::string name, int world_size);
  ~VoteLine() { shut(); }
  VoteLine(const VoteLine&) = delete;
  VoteLine& operator=(const VoteLine&) = delete;

  // StoreClosed if a rank does not come within `limit`.
  void join(Duration limit);
  void post(const Ballot& mine);
  std::optional<Ballot> result(Duration limit);
  // Ends the votes of all ranks.
  void shut() noexcept { connection_->shut(); }

 private:
  const std::shared_ptr<StoreConnection> connection_;
  const std::string name_;
  const int world_size_;
  bool pending_ = false;
};

}}  // namespace holdfast::v0_2
