// Who decides, at each call of the program, what is done: this process (Alone), or all ranks of the run
// together (Ranks). Nobody else asks whether there are others.
//
// Errors and threads: as the Checkpointer's calls of the same names.
#pragma once

#include <string>

#include "holdfast/checkpoint/checkpointer.h"

namespace holdfast { inline namespace v1 { namespace internal {

class Ensemble {
 public:
  Ensemble() = default;
  virtual ~Ensemble() = default;
  Ensemble(const Ensemble&) = delete;
  Ensemble& operator=(const Ensemble&) = delete;

  virtual void read_ahead() = 0;
  virtual Resumed resume() = 0;
  // after_step() has arrived at the next boundary: what is to be done here.
  virtual void at_boundary(Decision& decision) = 0;
  // tick() found something to look at: whether the loop is to end.
  virtual bool tick() = 0;
  // save()
  virtual SaveHandle save() = 0;
  // metric() found a value among the best, at this boundary.
  virtual void save_best(const std::string& name, double value) = 0;
  // An evaluation has begun: what of this boundary is kept meanwhile.
  virtual void enter_evaluation() = 0;
  virtual void leave_evaluation(bool thrown_out) = 0;
  virtual void finish() = 0;
  // The Checkpointer goes, and with it this process's part in what others wait for.
  virtual void leave() noexcept = 0;
  // No thread of this process uses what belongs to the program any longer: a write hangs in the disk.
  virtual void leave_write_behind() noexcept = 0;
};

}}}  // namespace holdfast::v1::internal
