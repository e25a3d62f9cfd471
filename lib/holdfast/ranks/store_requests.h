// Requests to a run's store in two halves, so that no thread waits for an answer: over a connection
// (StoreConnection), or in the store's own process (StoreSeat).
//
//   requests.begin(Kind::vote, {name, ballot});
//   auto words = requests.finish(limit);   // nullopt: still pending
//
// Errors: StoreClosed, which is final; StoreFailed. Threads: one; shut() any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/ranks/store_messages.h"

namespace holdfast { inline namespace v0_2 {

class StoreRequests {
 public:
  virtual ~StoreRequests() = default;

  // Sends a request. Never waits for the answer.
  virtual void begin(Kind kind, std::vector<std::string> words) = 0;
  // The words of its answer. nullopt if that did not arrive within `limit`; it is then still pending.
  virtual std::optional<std::vector<std::string>> finish(Duration limit) = 0;
  // Ends the connection. Also while another thread waits for an answer.
  virtual void shut() noexcept = 0;
};

}}  // namespace holdfast::v0_2
