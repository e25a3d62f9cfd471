// TrainState::value(): a variable of the program as a component.
#include <memory>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/train_state.h"
#include "holdfast/state/value.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The type is an option: resume compares it before it claims the run directory. load() compares it too, for a
// run that overrides the option.
class ValueComponent final : public TrainState::Component {
 public:
  ValueComponent(std::string name, ValueAccess access) : name_(std::move(name)), access_(std::move(access)) {}
  void save(StateWriter& out) const override {
    out.option("type", access_.type);
    access_.save(out);
  }
  void load(const StateReader& in) override {
    if (const std::string recorded = in.get_string("type"); recorded != access_.type) {
      throw RefusedError("refused: '" + name_ + "' is " + recorded + " in the checkpoint, and " +
                         access_.type + " in this program");
    }
    access_.read(in)();
  }
  // A counter, or an engine that draws the data.
  bool may_know_position() const override { return has("int") || has("engine"); }
  // A rate, a count of steps or of bad epochs.
  bool may_know_rates() const override { return has("int") || has("float"); }

 private:
  bool has(const char* type) const { return access_.type.find(type) != std::string::npos; }

  std::string name_;
  ValueAccess access_;
};

}  // namespace

void TrainState::add_value(const std::string& name, ValueAccess access) {
  add_component(name, std::make_unique<ValueComponent>(name, std::move(access)));
}

}}  // namespace holdfast::v0_2
