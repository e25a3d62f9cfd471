#include "holdfast/format/state_import.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/import/optimizer_import.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/pickle/pickle_tree.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/snapshot/digested_tensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::PickleArchive;
using internal::TextMembers;
using ValueKind = internal::PickleValue::Kind;

std::string first_of(std::string_view name, char mark) {
  return std::string(name.substr(0, name.find(mark)));
}

const std::vector<std::string>* texts_in(const Attributes& attributes, std::string_view name) {
  const Attribute* const attribute = attributes.find(name);
  return attribute != nullptr ? std::get_if<std::vector<std::string>>(&attribute->value) : nullptr;
}

bool same_memory(const internal::PickleTensor& a, const internal::PickleTensor& b) {
  return a.storage->key == b.storage->key && a.offset == b.offset && a.shape == b.shape &&
         a.strides == b.strides && a.dtype == b.dtype && a.type == b.type;
}

class StateImport {
 public:
  StateImport(const File& file, const CheckpointIndex& like)
      : file_(file), like_(like), archive_(file), draft_(like, archive_), root_(*archive_.values().root) {
    if (root_.kind != ValueKind::dict) internal::refuse("it is no dict of the parts of a training state");
    members_ = internal::text_members(root_);
    optimizers_ = internal::optimizers_of(like.attributes);
    parts_ = parts_with_tensors(like);
    for (const std::string& optimizer : optimizers_) parts_.erase(optimizer);
    list_modules();
    if (const auto* const options = texts_in(like.attributes, "state.options")) {
      options_.insert(options->begin(), options->end());
    }
  }

  ImportedState read(int threads) {
    std::vector<std::string> given;
    for (const std::string& part : parts_) {
      const auto* const dict = part_in_file(part);
      if (dict == nullptr) continue;
      take_own(part, *dict);
      given.push_back(part);
    }
    for (const Alias& alias : aliases_) take_alias(alias);
    for (const std::string& part : given) require_whole(part);
    const std::vector<std::string> modules(modules_.begin(), modules_.end());
    for (const std::string& optimizer : optimizers_) {
      const auto* const dict = part_in_file(optimizer);
      if (dict == nullptr) continue;
      internal::OptimizerImport import(draft_, optimizer, modules);
      import.take(*dict);
      note_taken(optimizer, import.what());
    }
    if (!took_a_trained_part()) {
      internal::refuse("none of its keys is a module or an optimizer of the checkpoint (" + names_of_parts() +
                       "), but " + internal::keys_in(root_));
    }
    take_attributes();
    take_position();
    archive_.check_size(draft_.index());
    return finish(threads);
  }

 private:
  struct Alias {
    std::string name;  // "decoder/weight"
    std::size_t tensor;
    const internal::PickleValue* value;
  };

  void list_modules() {
    constexpr std::string_view kModulePart = "module ";
    if (const auto* const listed = texts_in(like_.attributes, "state.parts")) {
      for (const std::string& part : *listed) {
        if (part.starts_with(kModulePart)) modules_.insert(part.substr(kModulePart.size()));
      }
    } else {
      modules_ = parts_;
    }
  }

  bool took_a_trained_part() const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const std::string& part) {
      return modules_.contains(part) || optimizers_.contains(part);
    });
  }

  std::string names_of_parts() const {
    std::string text;
    for (const auto* const names : {&modules_, &optimizers_}) {
      for (const std::string& name : *names) text += (text.empty() ? "'" : ", '") + printable(name, 64) + "'";
    }
    return text;
  }

  // Also under the name that Python's trainers give it. nullptr: the file does not name the part.
  const internal::PickleValue* part_in_file(const std::string& part) {
    for (const std::string& key : {part, part + "_state_dict"}) {
      const auto found = members_.find(key);
      if (found == members_.end()) continue;
      used_.insert(key);
      if (internal::items_of(*found->second) == nullptr) {
        internal::refuse("'" + printable(key) + "' is " + std::string(internal::kind_text(*found->second)) +
                         " in it, and a part of the checkpoint: delete this key in Python, or save the "
                         "part's state_dict() under it");
      }
      return found->second;
    }
    return nullptr;
  }

  void note_taken(const std::string& part, const std::string& what) {
    if (taken_.insert(part).second) from_file_.push_back(what);
  }

  // Every tensor of the part, and no other one.
  void take_own(const std::string& part, const internal::PickleValue& dict) {
    TextMembers members = internal::text_members(dict);
    std::set<std::size_t> named;
    for (const ExportedTensor& tensor : state_dict_of(like_, part)) {
      const TensorSpec& spec = like_.tensors[tensor.tensor].spec;
      const auto member = members.find(tensor.key);
      if (member == members.end()) continue;
      const std::string name = part + "/" + tensor.key;
      if (spec.name == name) {
        draft_.take(spec.name, *member->second, {spec});
        found_.emplace(tensor.tensor, member->second);
      } else {
        aliases_.push_back({name, tensor.tensor, member->second});
      }
      named.insert(tensor.tensor);
      members.erase(member);
    }
    for (const auto& [key, value] : members) {
      // Plain values, such as a module's extra state, have no place in a checkpoint.
      const bool holds_tensors = value->kind == ValueKind::tensor || value->kind == ValueKind::unstorable ||
                                 internal::items_of(*value) != nullptr || internal::is_sequence(*value);
      if (!holds_tensors) continue;
      if (like_.attributes.has(digest_attribute(part + "/" + std::string(key)))) {
        internal::refuse(
            "'" + printable(part + "/" + std::string(key)) +
            "' is frozen, and the checkpoint has its digest alone: delete this key in Python; the "
            "program has these weights before it resumes");
      }
      internal::refuse("'" + printable(part + "/" + std::string(key)) +
                       "' is not in the checkpoint: save the same model (without DataParallel's 'module.' in "
                       "front of its keys)");
    }
    note_taken(part,
               part + " (" + std::to_string(named.size()) + (named.size() == 1 ? " tensor)" : " tensors)"));
  }

  // After the aliases: any key of a tensor will do.
  void require_whole(const std::string& part) const {
    for (std::size_t i = 0; i < like_.tensors.size(); ++i) {
      const std::string& name = like_.tensors[i].spec.name;
      if (first_of(name, '/') != part || found_.contains(i)) continue;
      internal::refuse("'" + printable(name) + "' is in the checkpoint and not in it: save the whole " + "'" +
                       printable(part) + "', or delete this key in Python, and the checkpoint's stays");
    }
  }

  // Another key of a tensor: alone it stands for the tensor, and beside the first key it must be the same.
  void take_alias(const Alias& alias) {
    const TensorSpec& spec = like_.tensors[alias.tensor].spec;
    const internal::PickleValue& value = *alias.value;
    const auto [known, is_first] = found_.emplace(alias.tensor, alias.value);
    if (is_first) return draft_.take(spec.name, value, {spec});
    const internal::PickleValue& first = *known->second;
    if (value.kind == ValueKind::tensor && value.tensor->dtype == spec.dtype &&
        value.tensor->shape == spec.shape) {
      if (first.kind == ValueKind::tensor && same_memory(*first.tensor, *value.tensor)) return;
      draft_.read_beside(alias.name, *value.tensor);
      compared_.emplace_back(alias.name, spec.name);
      return;
    }
    refuse_alias(alias.name, spec.name);
  }
  [[noreturn]] static void refuse_alias(const std::string& alias, const std::string& name) {
    internal::refuse("'" + printable(alias) + "' and '" + printable(name) +
                     "' are one tensor in the checkpoint, and differ in it: tie them in Python");
  }

  // As torch_training_state() lays them out. nullptr: the file does not have it.
  const internal::PickleValue* attribute_in_file(const std::string& name) {
    const auto find_in = [&](const std::string& dict, std::string_view key) -> const internal::PickleValue* {
      auto [nested, is_new] = nested_.try_emplace(dict);
      const auto outer = members_.find(dict);
      if (is_new && outer != members_.end()) nested->second = internal::text_members(*outer->second);
      const auto found = nested->second.find(key);
      return found != nested->second.end() ? found->second : nullptr;
    };
    if (const auto* const found = find_in("attributes", name)) return found;
    const std::string first = first_of(name, '.');
    if (parts_.contains(first) || optimizers_.contains(first) || first == "attributes") return nullptr;
    if (name.size() > first.size()) {
      const auto* const found = find_in(first, std::string_view(name).substr(first.size() + 1));
      if (found != nullptr) used_.insert(first);
      return found;
    }
    const auto found = members_.find(name);
    if (found == members_.end() || name == "epoch") return nullptr;
    used_.insert(name);
    return found->second;
  }

  // What the form of modules decides, and what optimizers have taken from their own dicts.
  bool is_the_checkpoints(const std::string& name) const {
    const std::string first = first_of(name, '.');
    if (optimizers_.contains(first)) return true;
    if (!modules_.contains(first)) return false;
    const std::string_view rest = std::string_view(name).substr(first.size());
    return rest.starts_with(".alias.") || rest.starts_with(".strides.") || rest.starts_with(".dtype.");
  }

  void take_attributes() {
    used_.insert("attributes");
    for (const auto& [name, attribute] : like_.attributes) {
      if (attribute.role != Role::decides || name == "step" || options_.contains(name) ||
          is_the_checkpoints(name)) {
        continue;
      }
      const std::string first = first_of(name, '.');
      // Tensors and attributes of a part belong together.
      const bool is_whole = !parts_.contains(first) || taken_.contains(first);
      const auto* const value = is_whole ? attribute_in_file(name) : nullptr;
      if (value == nullptr) {
        others_.insert(first);
        continue;
      }
      const auto taken = internal::value_like(*value, attribute.value);
      if (!taken) {
        internal::refuse("'" + printable(name) + "' is " + std::string(internal::kind_text(*value)) +
                         " in it, and " + to_text(attribute.value) +
                         " in the checkpoint: delete it in Python, and the checkpoint's stays");
      }
      draft_.attributes.set(name, *taken);
      note_taken(first, first);
    }
  }

  std::optional<std::int64_t> count_in_file(const char* key) {
    const auto found = members_.find(key);
    if (found == members_.end()) return std::nullopt;
    used_.insert(key);
    const bool whole = found->second->kind == ValueKind::integer && found->second->integer >= 0;
    if (whole) return found->second->integer;
    internal::refuse("'" + std::string(key) + "' is " + std::string(internal::kind_text(*found->second)) +
                     " in it, and must be an integer of at least 0");
  }

  void take_position() {
    step_ = like_.step;
    if (const auto step = count_in_file("step")) {
      step_ = *step;
      from_file_.push_back("step " + std::to_string(step_));
    } else {
      others_.insert("step");
    }
    draft_.attributes.set("step", step_);
    const auto epoch = count_in_file("epoch");
    if (epoch && draft_.attributes.has("cursor.epoch") &&
        *epoch != draft_.attributes.get_int("cursor.epoch")) {
      begin_epoch(*epoch);
    }
  }

  // Another epoch than that of the cursor: it begins at its first sample, also for what delivers the data.
  void begin_epoch(std::int64_t epoch) {
    const std::int64_t now = draft_.attributes.get_int("cursor.epoch");
    const std::int64_t samples = draft_.attributes.get_int("cursor.samples");
    constexpr std::string_view kEpoch = ".epoch";
    std::vector<std::string> followers;
    for (const auto& [name, attribute] : draft_.attributes) {
      const std::string part = first_of(name, '.');
      const Attribute* const position = draft_.attributes.find(part + ".samples");
      if (name == part + std::string(kEpoch) && attribute.role == Role::decides && position != nullptr &&
          same_bits(attribute.value, now) && same_bits(position->value, samples)) {
        followers.push_back(part);
      }
    }
    for (const std::string& part : followers) {
      draft_.attributes.set(part + std::string(kEpoch), epoch);
      draft_.attributes.set(part + ".samples", std::int64_t{0});
      taken_.insert(part);
    }
    from_file_.push_back("epoch " + std::to_string(epoch) + ", from its beginning");
  }

  ImportedState finish(int threads) {
    ImportedState state;
    auto read = read_torch(file_, draft_.index(), "", threads);
    if (const auto* const rejection = std::get_if<Rejection>(&read)) internal::refuse(rejection->reason);
    state.read = std::get<std::shared_ptr<Snapshot>>(std::move(read));
    for (const auto& [alias, name] : compared_) {
      const auto a = state.read->find(alias).value(), b = state.read->find(name).value();
      if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) refuse_alias(alias, name);
    }
    state.step = step_;
    state.tensors = draft_.tensors();
    state.attributes = std::move(draft_.attributes);
    for (const auto& [name, attribute] : state.attributes.with_prefix("run.")) state.attributes.erase(name);
    state.made = std::move(draft_.made);
    state.from_file = std::move(from_file_);
    others_.insert(parts_.begin(), parts_.end());
    others_.insert(optimizers_.begin(), optimizers_.end());
    for (const std::string& other : others_) {
      if (!taken_.contains(other)) state.from_checkpoint.push_back(other);
    }
    for (const auto& [key, value] : members_) {
      if (!used_.contains(std::string(key))) state.left_out.emplace_back(key);
    }
    std::sort(state.left_out.begin(), state.left_out.end());
    state.ignored_options.assign(draft_.ignored_options.begin(), draft_.ignored_options.end());
    return state;
  }

  const File& file_;
  const CheckpointIndex& like_;
  PickleArchive archive_;
  internal::ImportDraft draft_;
  const internal::PickleValue& root_;
  TextMembers members_;            // of the root
  std::set<std::string> parts_;    // with tensors, without the optimizers
  std::set<std::string> modules_;  // parts that hold parameters
  std::set<std::string> optimizers_;
  std::set<std::string> options_;  // names of attributes
  std::map<std::string, TextMembers> nested_;
  std::map<std::size_t, const internal::PickleValue*> found_;  // by tensor, what stands for it
  std::vector<Alias> aliases_;
  std::vector<std::pair<std::string, std::string>>
      compared_;  // names of one tensor, which the file has twice
  std::int64_t step_ = 0;
  std::set<std::string> used_;    // keys of the root
  std::set<std::string> taken_;   // parts
  std::set<std::string> others_;  // parts of which the checkpoint's own attributes stay
  std::vector<std::string> from_file_;
};

}  // namespace

std::optional<std::span<const std::byte>> ImportedState::find(std::string_view name) const {
  if (const auto found = made.find(name); found != made.end()) return std::span(found->second);
  return read->find(name);
}

std::variant<ImportedState, Rejection> read_training_state(const File& file, const CheckpointIndex& like,
                                                           int threads) {
  if (auto rejection = internal::refuse_legacy(file)) return std::move(*rejection);
  try {
    return StateImport(file, like).read(threads);
  } catch (const internal::PickleRefusal& refusal) {
    return internal::damaged("PyTorch archive: " + refusal.reason);
  }
}

}}  // namespace holdfast::v0_2
