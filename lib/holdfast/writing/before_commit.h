// Work of the program that comes before each commit, such as a sync of the metrics' rows, so that a
// checkpoint does not outlive what belongs to it. The work has a thread of its own: its disk may hang, and a
// save must not hang with it.
//
// Errors: none. What fails, or takes longer than kPatience, is logged once, and the commit goes on.
// Threads: add() any; run() the writer's. A thread that hangs is left behind with the work that it owns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class BeforeCommit {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);

  BeforeCommit();
  void add(std::function<void()> work);
  void run() noexcept;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
  bool told_ = false;
};

}}  // namespace holdfast::v0_2
