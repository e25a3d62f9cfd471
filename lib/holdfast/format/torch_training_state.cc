// The whole training state in the shape of PyTorch's trainers.
#include <bit>
#include <map>
#include <set>

#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/pickle/pickle_writer.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/format/torch_export.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::PickleWriter;

std::string_view before(std::string_view text, char mark) { return text.substr(0, text.find(mark)); }
// Empty if there is no mark.
std::string_view behind(std::string_view text, char mark) {
  const std::size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
}

class TrainingState {
 public:
  explicit TrainingState(const CheckpointIndex& index)
      : index_(index), attributes_(index.attributes), parts_(parts_with_tensors(index)) {
    for (const auto& [name, attribute] : attributes_) {
      // An optimizer records at least one group; its slots may come only with the first step.
      constexpr std::string_view kFirstGroup = ".group.0.parameters";
      if (!name.ends_with(kFirstGroup)) continue;
      const std::string optimizer = name.substr(0, name.size() - kFirstGroup.size());
      if (attributes_.has(optimizer + ".type")) optimizers_.insert(optimizer);
    }
  }

  TorchPickle write() {
    pickle_.begin_dict();
    for (const std::string& part : parts_) {
      if (!optimizers_.contains(part)) write_part(part);
    }
    for (const std::string& optimizer : optimizers_) write_optimizer(optimizer);
    write_attributes();
    pickle_.end_dict();
    made_.pickle = pickle_.finish();
    return std::move(made_);
  }

 private:
  void write_tensor(std::size_t tensor) {
    // Shared tensors share one storage, as PyTorch would write them.
    const auto [storage, is_new] = storages_.emplace(tensor, made_.storages.size());
    if (is_new) made_.storages.push_back({tensor});
    const TensorSpec& spec = index_.tensors[tensor].spec;
    pickle_.tensor(storage->second, spec.dtype, spec.shape, byte_type_of(attributes_, spec));
  }

  void write_part(const std::string& part) {
    pickle_.text(part);
    pickle_.begin_dict();
    for (const ExportedTensor& tensor : state_dict_of(index_, part)) {
      pickle_.text(tensor.key);
      write_tensor(tensor.tensor);
    }
    pickle_.end_dict();
  }

  void write_value(const AttributeValue& value) {
    std::visit([this](const auto& known) { write_plain(known); }, value);
  }
  void write_plain(bool value) { pickle_.boolean(value); }
  void write_plain(std::int64_t value) { pickle_.integer(value); }
  void write_plain(double value) { pickle_.real(value); }
  void write_plain(const std::string& value) { pickle_.text(value); }
  template <class Item>
  void write_plain(const std::vector<Item>& values) {
    pickle_.begin_list();
    for (const Item& value : values) write_plain(value);
    pickle_.end_list();
  }

  struct Group {
    std::vector<std::string> parameters = {};
    std::vector<std::int64_t> steps = {};
    std::map<std::string, AttributeValue> options = {};
  };

  std::vector<Group> groups_of(const std::string& optimizer) const {
    std::vector<Group> groups;
    while (true) {
      const std::string prefix = optimizer + ".group." + std::to_string(groups.size()) + ".";
      if (!attributes_.has(prefix + "parameters")) return groups;
      Group group{.parameters = attributes_.get_strings(prefix + "parameters")};
      constexpr std::string_view kNow = "now.";
      for (const auto& [name, attribute] : attributes_.with_prefix(prefix)) {
        const std::string option = name.substr(prefix.size());
        if (option == "steps") {
          // Wrong types are left out: this form is for people and other programs, not for a resume.
          if (const auto* steps = std::get_if<std::vector<std::int64_t>>(&attribute.value))
            group.steps = *steps;
        } else if (option.starts_with(kNow)) {
          // A schedule's present value replaces the value that the group began with.
          group.options[option.substr(kNow.size())] = attribute.value;
        } else if (option != "parameters") {
          group.options.emplace(option, attribute.value);
        }
      }
      groups.push_back(std::move(group));
    }
  }

  using Slots = std::map<std::string, std::size_t>;
  using SlotsByParameter = std::map<std::string, Slots, std::less<>>;
  SlotsByParameter slots_of(const std::string& optimizer) const {
    SlotsByParameter slots;
    const std::string prefix = optimizer + "/";
    for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
      const std::string& name = index_.tensors[i].spec.name;
      if (!name.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(name).substr(prefix.size());
      slots[std::string(behind(rest, '/'))].emplace(before(rest, '/'), i);
    }
    return slots;
  }

  // As torch.optim.Optimizer.state_dict(): parameters are numbers, counted through all groups.
  void write_optimizer(const std::string& optimizer) {
    const std::vector<Group> groups = groups_of(optimizer);
    auto slots = slots_of(optimizer);
    // PyTorch's SGD has no step counter, and load_state_dict() would keep an unknown one.
    const bool counts = attributes_.get_string(optimizer + ".type") != "SGD";
    // PyTorch has it in every group, and takes a missing one for false.
    const bool maximizes = attributes_.has(optimizer + ".maximize");
    pickle_.text(optimizer);
    pickle_.begin_dict();
    pickle_.text("state");
    pickle_.begin_dict();
    std::int64_t number = 0;
    if (attributes_.has(optimizer + ".lbfgs.n_iter")) write_lbfgs(optimizer + ".lbfgs.", slots);
    for (const Group& group : groups) {
      for (std::size_t i = 0; i < group.parameters.size(); ++i, ++number) {
        const auto own = slots.find(group.parameters[i]);
        // A parameter that had no gradient yet has no state in PyTorch either.
        if (own == slots.end()) continue;
        const bool counted = counts && i < group.steps.size() && group.steps[i] >= 0;
        write_slots(own->second, number, counted ? std::optional(group.steps[i]) : std::nullopt);
        slots.erase(own);
      }
    }
    pickle_.end_dict();
    write_other_slots(slots);
    pickle_.text("param_groups");
    pickle_.begin_list();
    number = 0;
    for (const Group& group : groups) {
      pickle_.begin_dict();
      for (const auto& [option, value] : group.options) write_option(option, value);
      if (maximizes) {
        pickle_.text("maximize");
        pickle_.boolean(true);
      }
      pickle_.text("params");
      pickle_.begin_list();
      for (std::size_t i = 0; i < group.parameters.size(); ++i) pickle_.integer(number++);
      pickle_.end_list();
      pickle_.end_dict();
    }
    pickle_.end_list();
    pickle_.end_dict();
  }

  // All parameters have one state, under the first: counters, vectors, and lists of the history. The list
  // "al" stays out: each iteration of LBFGS fills it before it reads it.
  void write_lbfgs(const std::string& prefix, SlotsByParameter& slots) {
    constexpr char kSlot[] = "lbfgs";
    const auto tensor = [&](const std::string& name) {
      const auto found = slots.find(name);
      if (found == slots.end() || !found->second.contains(kSlot)) return false;
      write_tensor(found->second.at(kSlot));
      slots.erase(found);
      return true;
    };
    pickle_.integer(0);
    pickle_.begin_dict();
    for (const char* counter : {"func_evals", "n_iter", "t", "prev_loss"}) {
      const Attribute* const value = attributes_.find(prefix + counter);
      if (value == nullptr) continue;
      pickle_.text(counter);
      write_value(value->value);
    }
    for (const char* vector : {"d", "H_diag", "prev_flat_grad"}) {
      if (!slots.contains(vector)) continue;
      pickle_.text(vector);
      if (!tensor(vector)) pickle_.none();
    }
    for (const std::string list : {"old_dirs", "old_stps", "ro"}) {
      pickle_.text(list);
      pickle_.begin_list();
      for (std::size_t i = 0; tensor(list + "." + std::to_string(i)); ++i) continue;
      pickle_.end_list();
    }
    pickle_.end_dict();
    std::erase_if(slots, [](const auto& slot) { return slot.first.starts_with("al."); });
  }

  // What belongs to no parameter; load_state_dict() ignores this key.
  void write_other_slots(const SlotsByParameter& others) {
    if (others.empty()) return;
    pickle_.text("other");
    pickle_.begin_dict();
    for (const auto& [name, slots] : others) {
      for (const auto& [slot, tensor] : slots) {
        pickle_.text(slot + "/" + name);
        write_tensor(tensor);
      }
    }
    pickle_.end_dict();
  }

  void write_option(const std::string& option, const AttributeValue& value) {
    pickle_.text(option);
    // An option without a value, such as LBFGS's line_search_fn.
    const auto* const text = std::get_if<std::string>(&value);
    if (text != nullptr && *text == "none") return pickle_.none();
    const auto* const pair = std::get_if<std::vector<double>>(&value);
    if (pair == nullptr) return write_value(value);
    // load_state_dict() of Adam unpacks betas as a pair; a list would compare as another option.
    pickle_.begin_tuple();  // betas
    for (const double item : *pair) pickle_.real(item);
    pickle_.end_tuple();
  }

  void write_slots(const Slots& slots, std::int64_t number, std::optional<std::int64_t> steps) {
    pickle_.integer(number);
    pickle_.begin_dict();
    if (steps) {
      pickle_.text("step");
      write_step(*steps);
    }
    for (const auto& [slot, tensor] : slots) {
      pickle_.text(slot);
      write_tensor(tensor);
    }
    pickle_.end_dict();
  }

  // PyTorch counts in a float32 scalar tensor, or in float64, which has the counts that float32 rounds.
  void write_step(std::int64_t steps) {
    const bool exact = steps <= std::int64_t{1} << 24U;
    std::vector<std::byte> bytes(exact ? sizeof(float) : sizeof(double));
    if (exact) {
      internal::put_little_endian(std::span<std::byte>(bytes), 0,
                                  std::bit_cast<std::uint32_t>(static_cast<float>(steps)));
    } else {
      internal::put_little_endian(std::span<std::byte>(bytes), 0,
                                  std::bit_cast<std::uint64_t>(static_cast<double>(steps)));
    }
    pickle_.tensor(made_.storages.size(), exact ? DType::float32 : DType::float64, {});
    made_.storages.push_back({std::nullopt, std::move(bytes)});
  }

  // "schedule.last" becomes ["schedule"]["last"]. Those of modules and optimizers would disturb
  // load_state_dict(), so they lie in "attributes".
  void write_attributes() {
    using Named = std::pair<const std::string, Attribute>;
    std::map<std::string, std::vector<const Named*>> nested;
    std::vector<const Named*> others;
    pickle_.text("step");
    pickle_.integer(index_.step);
    for (const auto& attribute : attributes_) {
      const std::string first(before(attribute.first, '.'));
      const std::string_view rest = behind(attribute.first, '.');
      // The step stands at the top already.
      if (attribute.first == "step") continue;
      // A name that is a value and a prefix at once cannot become a key and a dict.
      if (parts_.contains(first) || optimizers_.contains(first) || first == "attributes" ||
          attribute.second.role == Role::record || (rest.empty() && first == "epoch") ||
          (!rest.empty() && attributes_.has(first))) {
        others.push_back(&attribute);
      } else if (rest.empty()) {
        pickle_.text(first);
        write_value(attribute.second.value);
      } else {
        nested[first].push_back(&attribute);
      }
    }
    // Where PyTorch's trainers look for it. An attribute that has this name itself stands in "attributes".
    if (const Attribute* const epoch = attributes_.find("cursor.epoch")) {
      pickle_.text("epoch");
      write_value(epoch->value);
    }
    for (const auto& [first, attributes] : nested) {
      pickle_.text(first);
      pickle_.begin_dict();
      for (const auto* attribute : attributes) {
        pickle_.text(behind(attribute->first, '.'));
        write_value(attribute->second.value);
      }
      pickle_.end_dict();
    }
    pickle_.text("attributes");
    pickle_.begin_dict();
    for (const auto* attribute : others) {
      pickle_.text(attribute->first);
      write_value(attribute->second.value);
    }
    pickle_.end_dict();
  }

  const CheckpointIndex& index_;
  const Attributes& attributes_;
  std::set<std::string> parts_;
  std::set<std::string> optimizers_;  // may have no slots yet
  std::map<std::size_t, std::uint64_t> storages_;
  PickleWriter pickle_;
  TorchPickle made_;
};

}  // namespace

TorchPickle torch_training_state(const CheckpointIndex& index) { return TrainingState(index).write(); }

}}  // namespace holdfast::v0_2
