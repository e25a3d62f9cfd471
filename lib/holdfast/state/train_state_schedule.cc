// TrainState::add() of a schedule of LibTorch. Only a derived class may see how many steps it has counted.
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/train_state.h"
#include "holdfast/state/value.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using torch::optim::LRScheduler;

// Never constructed: it may name a protected member of its base.
struct Counting : LRScheduler {
  static unsigned& steps_of(LRScheduler& schedule) { return schedule.*(&Counting::step_count_); }
};

class LibTorchSchedule final : public TrainState::Component {
 public:
  LibTorchSchedule(std::string name, LRScheduler& schedule) : name_(std::move(name)), schedule_(&schedule) {}
  void save(StateWriter& out) const override {
    out.option("type", value_io::class_name(typeid(*schedule_)));
    out.put("steps", std::int64_t{Counting::steps_of(*schedule_)});
  }
  void load(const StateReader& in) override {
    const std::int64_t steps = in.get_int("steps");
    if (steps < 0 || steps > std::int64_t{std::numeric_limits<unsigned>::max()}) {
      throw RefusedError("the recorded number of steps of schedule '" + name_ + "' is " +
                         std::to_string(steps));
    }
    Counting::steps_of(*schedule_) = static_cast<unsigned>(steps);
  }

 private:
  std::string name_;
  LRScheduler* schedule_;
};

}  // namespace

void TrainState::add(const std::string& name, LRScheduler& schedule) {
  add_component(name, std::make_unique<LibTorchSchedule>(name, schedule));
}

}}  // namespace holdfast::v0_2
