// What each call of the program does, from resume() to finish(): one flow for one rank and for many. What is
// decided is the core's (RunDriver).
//
// Errors: as the Checkpointer's calls of the same names; with other ranks an exception ends this rank's part
// in the run. Threads: the training thread.
#pragma once

#include <optional>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/engine.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Calls {
 public:
  explicit Calls(Engine& engine) : engine_(engine), run_(engine.run), driver_(engine.driver) {}

  void read_ahead();
  std::optional<Peeked> peek();
  Resumed resume();
  void before_update();
  // after_step() has reached the next boundary.
  void at_boundary(Decision& decision);
  bool tick();
  SaveHandle save();
  // metric() got a value among the best at this boundary.
  void save_best(const std::string& name, double value);
  void enter_evaluation();
  void cut_short() { unfinished_ = true; }
  void leave_evaluation(bool thrown_out) noexcept;
  void finish();
  // The Checkpointer is destroyed: other ranks no longer wait for this one.
  void leave() noexcept;

 private:
  void tell_update();
  void lay_out();
  run::Keep keep(DataEnd end, bool is_last);
  void rest();
  std::string why_torn() const;
  template <class Work>
  void or_abandon(const Work& work);
  void abandon(const Error& error) noexcept;

  Engine& engine_;
  Run& run_;
  RunDriver& driver_;
  int peeks_ = 0;
  bool update_told_ = false;  // the core knows that an update has begun
  bool evaluating_ = false, unfinished_ = false;
  SteadyTime kept_{};  // when the image of an epoch's end was made
};

}}}  // namespace holdfast::v0_2::internal
