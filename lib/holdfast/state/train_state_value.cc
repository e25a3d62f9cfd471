// TrainState::value(): a variable of the program as a component; what ranks hold unlike in such.
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/component_io.h"
#include "holdfast/state/internal/frozen_tensors.h"
#include "holdfast/state/internal/train_state_parts.h"
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

// Larger tensors are buffers of samples, which would cost a start their reading.
constexpr std::size_t kLargestCompared = 1 << 20;

class DigestWriter final : public internal::ComponentWriter {
 public:
  DigestWriter(std::string component, std::map<std::string, std::string>& out)
      : ComponentWriter(std::move(component)), out_(out) {}

 private:
  void take_tensor(std::string name, const at::Tensor& tensor) override {
    if (!tensor.is_cpu() || tensor.nbytes() > kLargestCompared) return;
    out_.emplace(std::move(name), to_hex(internal::digest_of_tensor(tensor)));
  }
  std::map<std::string, std::string>& out_;
};

}  // namespace

std::map<std::string, std::string> TrainState::value_digests() {
  std::map<std::string, std::string> digests;
  for (const State::Part& part : state_->components) {
    const auto* const value = dynamic_cast<const ValueComponent*>(part.component.get());
    if (value == nullptr) continue;
    DigestWriter writer(part.name, digests);
    value->save(writer);
  }
  return digests;
}

void TrainState::add_value(const std::string& name, ValueAccess access) {
  add_component(name, std::make_unique<ValueComponent>(name, std::move(access)));
}

}}  // namespace holdfast::v0_2
