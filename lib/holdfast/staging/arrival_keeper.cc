#include "holdfast/staging/arrival_keeper.h"

#include <optional>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

ArrivalKeeper::~ArrivalKeeper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ArrivalKeeper::keep(std::unique_ptr<LateCopy>& copy, Snapshot& snapshot) {
  // All bytes are there already, so nobody has to wait.
  if (!copy->on_its_way()) {
    copy.reset();
    return;
  }
  // Not before: a run whose copies are whole at once needs no thread.
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      log_debug("no thread to wait for a device's copies ({}): the training waits", error.what());
      copy->arrive();
      copy.reset();
      return;
    }
  }
  // What needs memory comes before the item: without memory the copy still belongs to the caller.
  const auto arrival = std::make_shared<Arrival>();
  std::shared_ptr<PieceDigests> digests;
  if (!snapshot.digests) digests = std::make_shared<PieceDigests>(snapshot);
  {
    const MutexLock lock(mutex_);
    Item& item = items_.emplace_back();
    item.copy = std::move(copy);
    item.arena = snapshot.arena;
    item.arrival = arrival;
    item.digests = digests;
  }
  snapshot.arrival = arrival;
  if (digests) snapshot.digests = digests;
  wake_.notify_one();
}

void ArrivalKeeper::work() noexcept {
  MutexLock lock(mutex_);
  while (true) {
    wake_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return stopping_ || !items_.empty(); });
    // Not at stopping_ alone: the copies that were handed over are still seen in.
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    finish_arrival(std::move(item));
    lock.lock();
  }
}

// Releases the image before it wakes the waiters, so that they find it free.
void ArrivalKeeper::finish_arrival(Item item) noexcept {
  std::optional<std::string> failure;
  try {
    if (item.digests) {
      item.copy->arrive_digesting(*item.digests);
    } else {
      item.copy->arrive();
    }
  } catch (const std::exception& error) {
    failure = text_or_out_of_memory([&] { return std::string(what_of(error)); });
  } catch (...) {
    failure = text_or_out_of_memory([] { return std::string("an exception of unknown type"); });
  }
  item.copy.reset();
  item.digests.reset();
  item.arena.reset();
  if (failure) {
    item.arrival->fail(*failure);
  } else {
    item.arrival->settle();
  }
}

}}}  // namespace holdfast::v0_2::internal
