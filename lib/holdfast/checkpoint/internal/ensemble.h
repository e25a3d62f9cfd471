// Decides at each call of the program what is done: this process alone (Alone), or all ranks of the run
// together (Ranks). No other class asks whether there are other ranks.
//
// Errors and threads: as the Checkpointer's calls of the same names.
#pragma once

#include <optional>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Ensemble {
 public:
  Ensemble() = default;
  virtual ~Ensemble() = default;
  Ensemble(const Ensemble&) = delete;
  Ensemble& operator=(const Ensemble&) = delete;

  virtual void read_ahead() = 0;
  virtual std::optional<Peeked> peek() = 0;
  virtual Resumed resume() = 0;
  // after_step() has reached the next boundary: returns the decision.
  virtual void at_boundary(Decision& decision) = 0;
  // tick() found a notice or a request: returns whether the loop must end.
  virtual bool tick() = 0;
  // save()
  virtual SaveHandle save() = 0;
  // metric() got a value among the best at this boundary.
  virtual void save_best(const std::string& name, double value) = 0;
  // An evaluation has begun: keeps an image of this boundary.
  virtual void enter_evaluation() = 0;
  virtual void leave_evaluation(bool thrown_out) = 0;
  virtual void finish() = 0;
  // The Checkpointer is destroyed: other ranks no longer wait for this one.
  virtual void leave() noexcept = 0;
  // A write hangs in the disk and is left behind: afterwards no thread uses the program's objects.
  virtual void leave_write_behind() noexcept = 0;
};

}}}  // namespace holdfast::v0_2::internal
