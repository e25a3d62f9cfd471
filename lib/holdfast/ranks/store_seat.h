// Rank 0's requests to the run's store, which is in its own process: no socket, no system call, no other thread. A
// vote of rank 0 costs a lock, and a message to each other rank if it was the last one.
//
// Errors and threads: as StoreRequests.
#pragma once

#include <deque>
#include <memory>

#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"
#include "holdfast/ranks/store_requests.h"
#include "holdfast/ranks/store_server.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT StoreSeat final : public StoreRequests {
 public:
  explicit StoreSeat(std::shared_ptr<StoreServer> server);
  ~StoreSeat() override { shut(); }
  StoreSeat(const StoreSeat&) = delete;
  StoreSeat& operator=(const StoreSeat&) = delete;

  void begin(Kind kind, std::vector<std::string> words) override;
  std::optional<std::vector<std::string>> finish(Duration limit) override;
  void shut() noexcept override;

 private:
  void hear(const Message& answer) HOLDFAST_EXCLUDES(mutex_);

  const std::shared_ptr<StoreServer> server_;
  const StoreTable::Client number_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Message> answers_ HOLDFAST_GUARDED_BY(mutex_);
  bool closed_ HOLDFAST_GUARDED_BY(mutex_) = false;
};

}}  // namespace holdfast::v0_2
