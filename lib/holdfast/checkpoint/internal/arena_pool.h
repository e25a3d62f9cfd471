// The images that saves are staged into. One at a time by default: while a write holds it, a save waits for
// it or is skipped, so host memory stays at one state. A lease returns by itself when its last holder lets
// go.
//
// Threads: leases may end on any thread; everything else on the training thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "holdfast/format/file_plan.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

class ArenaPool {
 public:
  explicit ArenaPool(int limit);

  // Images of this plan from now on; those of an earlier one are freed as they return.
  void use_plan(std::shared_ptr<const FilePlan> plan);
  // How an image of the plan is made: make_image, unless said otherwise here.
  using MakeImage = std::function<std::shared_ptr<Arena>(const FilePlan&)>;
  void make_with(MakeImage make) { make_ = std::move(make); }
  // What each image is given before it is first taken.
  void prepare_with(PrepareImage prepare) { prepare_ = std::move(prepare); }
  // Memory that somebody else is done with: the next image is made of it where it has the plan's length and
  // there is none yet. Otherwise, and while anybody still holds it, it is let go.
  void offer(std::shared_ptr<Arena> arena);
  // Fewer than `limit` images are held by somebody.
  bool ready() const;
  // The same after at most `wait`.
  bool wait_ready(std::chrono::nanoseconds wait) const;
  // An image, also beyond the limit: then one more state's memory is used until it returns.
  std::shared_ptr<Arena> take();

 private:
  struct Core;
  std::shared_ptr<Core> core_;
  MakeImage make_ = make_image;
  PrepareImage prepare_;
};

}  // namespace holdfast::inline v1::internal
