// A run of one process. A step without work (quiet_steps.h) costs a few loads, one read of the clock and a
// slot in a ring, independently of the model's size.
//
// Errors and threads: as Ensemble.
#pragma once

#include <optional>
#include <string>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/ensemble.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Alone final : public Ensemble {
 public:
  explicit Alone(Engine& engine) : engine_(engine) {}

  void read_ahead() override { engine_.start.finder().read_ahead(); }
  std::optional<Peeked> peek() override;
  Resumed resume() override;
  void at_boundary(Decision& decision) override;
  bool tick() override;
  SaveHandle save() override;
  void save_best(const std::string& name, double value) override;
  void enter_evaluation() override;
  void leave_evaluation(bool thrown_out) override;
  void finish() override { engine_.end.finish(); }
  void leave() noexcept override {}
  void leave_write_behind() noexcept override {}

 private:
  void act(Decision& decision) noexcept;
  void pause(Decision& decision) noexcept;

  Engine& engine_;
};

}}}  // namespace holdfast::v0_2::internal
