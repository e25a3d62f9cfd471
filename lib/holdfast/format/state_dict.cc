#include "holdfast/format/state_dict.h"

#include <algorithm>
#include <map>
#include <utility>

#include "holdfast/format/foreign_weights.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct Alias {
  std::string key;     // "decoder.weight"
  std::string target;  // "model/embedding.weight"
};

std::string alias_prefix(std::string_view module) { return std::string(module) + ".alias."; }

std::vector<Alias> aliases_in(const Attributes& attributes, std::string_view module) {
  std::vector<Alias> aliases;
  const std::string prefix = alias_prefix(module);
  for (const auto& [name, attribute] : attributes.with_prefix(prefix)) {
    if (const auto* const target = std::get_if<std::string>(&attribute.value)) {
      aliases.push_back({name.substr(prefix.size()), *target});
    }
  }
  return aliases;
}

bool same_tensor(const Snapshot& snapshot, std::size_t a, std::size_t b) {
  const TensorSpec& first = snapshot.layout->tensors()[a];
  const TensorSpec& second = snapshot.layout->tensors()[b];
  const auto bytes = snapshot.bytes(a);
  const auto others = snapshot.bytes(b);
  return first.dtype == second.dtype && first.shape == second.shape &&
         std::equal(bytes.begin(), bytes.end(), others.begin(), others.end());
}

// Applies the first matching spelling to a key: another program's into ours. Empty: the key is ignored.
std::string respelt(std::string name, const std::vector<std::string>& spellings) {
  // Behind "model/", so that a spelling cannot match the group itself.
  const std::size_t begin = kModelModule.size() + 1;
  for (std::size_t i = 0; i + 1 < spellings.size(); i += 2) {
    const std::size_t at = name.find(spellings[i], begin);
    if (at == std::string::npos) continue;
    name.replace(at, spellings[i].size(), spellings[i + 1]);
    return name.size() == begin ? std::string() : name;
  }
  return name;
}

// Renames shared tensors to the state's one name for them. If two keys hold different bytes, it leaves both,
// and load() reports them.
void unite(Snapshot& snapshot, const std::vector<Alias>& aliases, const std::vector<std::string>& spellings) {
  const auto& tensors = snapshot.layout->tensors();
  std::map<std::string, std::size_t> by_name;
  std::vector<std::pair<std::string, std::size_t>> respelt_ones;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string name = respelt(tensors[i].name, spellings);
    if (name == tensors[i].name) {
      by_name.emplace(std::move(name), i);
    } else if (!name.empty()) {
      respelt_ones.emplace_back(std::move(name), i);
    }
  }
  // If the file has both spellings, the foreign one stays unknown, and load() reports it.
  for (const auto& [name, i] : respelt_ones) {
    if (!by_name.emplace(name, i).second) by_name.emplace(tensors[i].name, i);
  }
  for (const Alias& alias : aliases) {
    const auto own = by_name.find(std::string(kModelModule) + "/" + alias.key);
    const auto target = by_name.find(alias.target);
    // The file has neither name; load() reports what is missing.
    if (own == by_name.end() && target == by_name.end()) continue;
    if (own != by_name.end()) {
      // Two different tensors under shared names: which one is right is not for us to decide.
      if (target != by_name.end() && !same_tensor(snapshot, own->second, target->second)) continue;
      by_name.emplace(alias.target, own->second);
      by_name.erase(own);
    }
    snapshot.attributes.set(alias_prefix(kModelModule) + alias.key, alias.target);
  }
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  for (const auto& [name, i] : by_name) {
    specs.push_back(tensors[i]);
    specs.back().name = name;
    offsets.push_back(snapshot.layout->offset(i));
  }
  snapshot.layout =
      std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), snapshot.layout->length());
}

}  // namespace

std::vector<ExportedTensor> state_dict_of(const CheckpointIndex& index, std::string_view module) {
  const std::string prefix = std::string(module) + "/";
  std::vector<ExportedTensor> tensors;
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const std::string& name = index.tensors[i].spec.name;
    by_name.emplace(name, i);
    if (name.starts_with(prefix)) tensors.push_back({name.substr(prefix.size()), i});
  }
  // PyTorch writes every name of a shared tensor, so foreign programs find the one that they know.
  for (Alias& alias : aliases_in(index.attributes, module)) {
    const auto target = by_name.find(alias.target);
    if (target != by_name.end()) tensors.push_back({std::move(alias.key), target->second});
  }
  return tensors;
}

std::set<std::string> parts_with_tensors(const CheckpointIndex& index) {
  std::set<std::string> parts;
  for (const IndexedTensor& tensor : index.tensors) {
    parts.insert(tensor.spec.name.substr(0, tensor.spec.name.find('/')));
  }
  constexpr std::string_view kModule = "module ";
  const Attribute* const listed = index.attributes.find("state.parts");
  const auto* const names = listed ? std::get_if<std::vector<std::string>>(&listed->value) : nullptr;
  if (names == nullptr) return parts;
  for (const std::string& part : *names) {
    if (!part.starts_with(kModule)) continue;
    std::string module = part.substr(kModule.size());
    if (!state_dict_of(index, module).empty()) parts.insert(std::move(module));
  }
  return parts;
}

std::vector<ExportedTensor> averaged_state_dict_of(const CheckpointIndex& index, std::string_view part,
                                                   std::string_view module) {
  std::vector<ExportedTensor> tensors = state_dict_of(index, part);
  std::map<std::string, std::size_t> by_key;
  for (const ExportedTensor& tensor : tensors) by_key.emplace(tensor.key, tensor.tensor);
  for (const Alias& alias : aliases_in(index.attributes, module)) {
    // An Ema of this module alone has the tensors of others under its own keys.
    if (!alias.target.starts_with(std::string(module) + "/")) continue;
    const auto target = by_key.find(alias.target.substr(module.size() + 1));
    if (target != by_key.end() && !by_key.contains(alias.key)) tensors.push_back({alias.key, target->second});
  }
  return tensors;
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_weights(const File& foreign, const Attributes& now,
                                                                int threads) {
  auto index = read_foreign_index(foreign);
  if (auto* const rejection = std::get_if<Rejection>(&index)) return std::move(*rejection);
  auto read = read_foreign(foreign, std::get<ForeignIndex>(index), kModelModule, threads);
  if (auto* const snapshot = std::get_if<std::shared_ptr<Snapshot>>(&read)) {
    const std::string spellings = std::string(kModelModule) + ".spellings";
    unite(**snapshot, aliases_in(now, kModelModule),
          now.has(spellings) ? now.get_strings(spellings) : std::vector<std::string>());
  }
  return read;
}

}}  // namespace holdfast::v0_2
