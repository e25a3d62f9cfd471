// The images that saves are staged into. The default is one: while a write holds it, a save waits for it or
// is skipped, so host memory stays at one state. An image returns when its last holder releases it.
//
// Errors: exceptions of MakeImage and PrepareImage pass through. Threads: an image may return on any thread;
// all methods on the training thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "holdfast/format/file_plan.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class ArenaPool {
 public:
  explicit ArenaPool(int limit);

  // Makes images of this plan from now on. Images of an earlier plan are freed when they return.
  void use_plan(std::shared_ptr<const FilePlan> plan);
  // Replaces make_image as the function that makes an image.
  using MakeImage = std::function<std::shared_ptr<Arena>(const FilePlan&)>;
  void make_with(MakeImage make) { make_ = std::move(make); }
  // `prepare` runs once on each image, before its first use.
  void prepare_with(PrepareImage prepare) { prepare_ = std::move(prepare); }
  // Offers memory that is no longer needed: it becomes the next image if it has the plan's length, nobody
  // else holds it, and there is no image yet. Otherwise it is released.
  void offer(std::shared_ptr<Arena> arena);
  // True if fewer than `limit` images are in use.
  bool ready() const;
  // Waits at most `wait` for that.
  bool wait_ready(std::chrono::nanoseconds wait) const;
  // Returns an image, beyond the limit if necessary: one more state's memory is then used until it returns.
  std::shared_ptr<Arena> take();

 private:
  struct Core;
  std::shared_ptr<Core> core_;
  MakeImage make_ = make_image;
  PrepareImage prepare_;
};

}}}  // namespace holdfast::v0_2::internal
