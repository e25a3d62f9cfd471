// Keeps images that a device is still copying into until they have arrived. Its thread waits for one after
// the other, digests what arrives (Snapshot::digests), releases the copy and the image, and then wakes the
// waiters of the snapshot. If no thread can be made, keep() waits itself.
//
// Errors: see keep(). Threads: keep() on the training thread. The destructor waits for all images.
#pragma once

#include <deque>
#include <memory>
#include <thread>

#include "holdfast/base/mutex.h"
#include "holdfast/snapshot/piece_digests.h"
#include "holdfast/snapshot/snapshot.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class ArrivalKeeper {
 public:
  ArrivalKeeper() = default;
  ~ArrivalKeeper();
  ArrivalKeeper(const ArrivalKeeper&) = delete;
  ArrivalKeeper& operator=(const ArrivalKeeper&) = delete;

  // Afterwards the snapshot may be passed to any thread: it has an arrival, unless it is already whole.
  // Requires that every run() of the copy has returned. Throws std::bad_alloc (took nothing), or arrive()'s
  // exceptions if no thread could start.
  void keep(std::unique_ptr<LateCopy>& copy, Snapshot& snapshot);

 private:
  struct Item {
    std::unique_ptr<LateCopy> copy;
    std::shared_ptr<Arena> arena;
    std::shared_ptr<Arrival> arrival;
    std::shared_ptr<PieceDigests> digests;  // null: a late stager has digested the host's part already
  };
  void work() noexcept;
  static void finish_arrival(Item item) noexcept;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Item> items_ HOLDFAST_GUARDED_BY(mutex_);
  bool stopping_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}}}  // namespace holdfast::v0_2::internal
