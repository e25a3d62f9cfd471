// Holds images that a device is still copying into, until they have arrived: a thread of its own waits for
// one after the other, lets the copy and the image go, and then tells whoever waits for the snapshot. Where
// no thread can be made, keep() waits itself.
//
// Threads: keep() on the training thread; the waiting thread is inside. The destructor waits for all.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "holdfast/snapshot/snapshot.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

class ArrivalKeeper {
 public:
  ArrivalKeeper() = default;
  ~ArrivalKeeper();
  ArrivalKeeper(const ArrivalKeeper&) = delete;
  ArrivalKeeper& operator=(const ArrivalKeeper&) = delete;

  // From here on the snapshot may be handed to anybody: it has an arrival, unless it is whole already.
  // Requires that every run() of the copy has returned. Throws std::bad_alloc, and then took nothing; without
  // a thread also what arrive() throws.
  void keep(std::unique_ptr<LateCopy>& copy, Snapshot& snapshot);

 private:
  struct Item {
    std::unique_ptr<LateCopy> copy;
    std::shared_ptr<Arena> arena;
    std::shared_ptr<Arrival> arrival;
  };
  void work() noexcept;
  static void see_in(Item item) noexcept;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace holdfast::inline v1::internal
