// Work of the program that comes before each commit, such as a sync of the metrics' rows, so that a
// checkpoint does not outlive what belongs to it. The work has a thread of its own, beside the write of the
// file: its disk may hang, and a save must not hang with it.
//
//   work.begin();
//   … the file is written …
//   work.wait();
//   … and gets its name
//
// Errors: none. What fails, or takes longer than kPatience, is logged once, and the commit goes on.
// Threads: add() any; the others the writer's. A thread that hangs is left behind with the work that it owns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class BeforeCommit {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);  // from begin() on

  BeforeCommit();
  void add(std::function<void()> work);
  void begin() noexcept;
  void wait() noexcept;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
  SteadyTime until_{};
  bool told_slow_ = false, told_failure_ = false;
};

}}  // namespace holdfast::v0_2
