// Holds the image of a step boundary during an evaluation. The first thread that hears a notice commits it:
// the training thread, or the watch's thread while the training thread runs the program's code.
//
// Errors: none; what fails is logged. Threads: as each method says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "holdfast/base/mutex.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_partners.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class BoundaryShelf {
 public:
  BoundaryShelf(Run& run, SavePartners& partners) : run_(run), partners_(partners) {}

  // The training thread. `tried`: the newest save of that boundary, which may fail. `lacks`: the name of the
  // text by which other ranks tell what the image still lacks; empty: nothing.
  void put(const Staged& image, SaveHandle tried, std::string lacks) noexcept;
  // Any thread. True: the image is durable or in flight.
  bool commit() noexcept;
  // The training thread. If another thread is submitting the image, waits until it has, so the order of saves
  // is kept. Returns the newest save that was begun here; null: none.
  BegunSave clear() noexcept;

  // What the image lacks; nullopt: there is no image. Any thread.
  std::optional<std::string> lacks() const;
  // Puts the content of that text into the image. False: the image lacks another text now. Any thread.
  bool complete(const std::string& lacked, const std::function<void(const Snapshot& image)>& put_in);

 private:
  // The newest save of the boundary is durable or in flight.
  bool stands() const HOLDFAST_REQUIRES(mutex_);

  Run& run_;
  SavePartners& partners_;
  mutable Mutex mutex_;
  CondVar handed_over_;
  // That thread gives image_ to the writer, without the mutex.
  std::optional<std::thread::id> handing_ HOLDFAST_GUARDED_BY(mutex_);
  Staged image_ HOLDFAST_GUARDED_BY(mutex_);
  std::string lacks_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime boundary_ HOLDFAST_GUARDED_BY(mutex_){};  // when the training stood there
  SaveHandle tried_ HOLDFAST_GUARDED_BY(mutex_);       // the newest save of it, whoever began that
  BegunSave save_ HOLDFAST_GUARDED_BY(mutex_);         // the newest that was begun here
  SteadyTime retry_ HOLDFAST_GUARDED_BY(mutex_){};     // after one that failed, not before
};

}}}  // namespace holdfast::v0_2::internal
