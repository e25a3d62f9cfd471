#include "holdfast/cli/weights/weights_diff.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/metered_file.h"
#include "holdfast/cli/weights/differing_tensors.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/snapshot/digested_tensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The weights of one file: a checkpoint's module "model", or all of a foreign file.
class Weights {
 public:
  Weights(const std::filesystem::path& path, ReadLimit& limit)
      : path_(path), opened_(open_checkpoint(path)), file_(std::make_unique<MeteredFile>(*opened_, limit)) {
    looks_foreign(*file_) ? list_foreign() : list_checkpoint();
    forget_unshared();
  }

  // By key; the names in checkpoints have a group in front.
  const std::map<std::string, TensorSpec>& specs() const { return specs_; }

  // The type of a tensor that is stored as bytes; nullptr for all others.
  const ByteType* type(const std::string& key) const {
    const auto found = types_.find(key);
    return found != types_.end() ? found->second : nullptr;
  }

  // Set for a frozen tensor that a checkpoint has by digest alone: read() has no bytes of it.
  std::optional<Digest> digest(const std::string& key) const {
    const auto found = digests_.find(key);
    return found != digests_.end() ? std::optional(found->second) : std::nullopt;
  }

  // Where the bytes lie, if other keys share them: a storage of PyTorch, or one tensor of a checkpoint.
  std::optional<std::size_t> shared_source(const std::string& key) const {
    const auto found = sources_.find(key);
    return found != sources_.end() ? std::optional(found->second) : std::nullopt;
  }

  // Valid until the next call. Reads nothing if the last call was for the same source.
  std::span<const std::byte> read(const std::string& key) {
    const auto from = shared_source(key);
    if (!from || from != read_source_) {
      read_.reset();  // before the next one needs memory
      read_ = read_with(key, from);
      read_source_ = from;
    }
    const std::string& name = specs_.at(key).name;
    return read_->find(foreign_ ? std::string(kModelModule) + "/" + name : name).value();
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(shown(path_) + ": " + reason, ExitCode::unreadable);
  }

  void list_checkpoint() {
    checkpoint_ = open_for_comparison(path_).index;
    for (const ExportedTensor& tensor : state_dict_of(checkpoint_)) {
      const TensorSpec& spec = checkpoint_.tensors[tensor.tensor].spec;
      specs_[tensor.key] = spec;
      types_[tensor.key] = byte_type_of(checkpoint_.attributes, spec);
      sources_[tensor.key] = tensor.tensor;
    }
    const auto add = [this](const std::string& key, const DigestedTensor& tensor) {
      if (!specs_.try_emplace(key, tensor.spec).second) return;
      types_[key] = nullptr;
      digests_[key] = tensor.digest;
    };
    const std::string prefix = std::string(kModelModule) + "/";
    const std::string alias = std::string(kModelModule) + ".alias.";
    const auto aliases = checkpoint_.attributes.with_prefix(alias);
    for (const DigestedTensor& tensor : digested_tensors(checkpoint_.attributes)) {
      const std::string& name = tensor.spec.name;
      if (!name.starts_with(prefix)) continue;
      add(name.substr(prefix.size()), tensor);
      for (const auto& [attribute, target] : aliases) {
        if (target.value == AttributeValue(name)) add(attribute.substr(alias.size()), tensor);
      }
    }
  }
  void list_foreign() {
    auto index = read_foreign_index(*file_);
    if (const auto* const rejection = std::get_if<Rejection>(&index)) refuse(rejection->reason);
    foreign_ = std::move(std::get<ForeignIndex>(index));
    std::visit(
        [&](const auto& known) {
          for (const auto& tensor : known.tensors) {
            specs_[tensor.spec.name] = tensor.spec;
            types_[tensor.spec.name] = tensor.type;
          }
        },
        *foreign_);
    const auto* const torch = std::get_if<TorchIndex>(&*foreign_);
    // In safetensors no two tensors share bytes.
    if (torch == nullptr) return;
    for (const auto& tensor : torch->tensors) sources_[tensor.spec.name] = tensor.storage;
  }

  // A key without a partner gains nothing from the order by source, and keeps its place by name.
  void forget_unshared() {
    std::map<std::size_t, int> users;
    for (const auto& [key, source] : sources_) ++users[source];
    std::erase_if(sources_, [&](const auto& each) { return users[each.second] == 1; });
  }

  // With all tensors of its source.
  std::shared_ptr<Snapshot> read_with(const std::string& key, std::optional<std::size_t> source) const {
    const std::string& name = specs_.at(key).name;
    const auto wanted = [&](const TensorSpec& spec) {
      return spec.name == name || (foreign_ && source && shared_source(spec.name) == source);
    };
    auto read = foreign_ ? read_foreign(*file_, *foreign_, kModelModule, 1, wanted)
                         : read_tensors(*file_, checkpoint_, wanted, 1);
    if (const auto* const rejection = std::get_if<Rejection>(&read)) refuse(rejection->reason);
    return std::get<std::shared_ptr<Snapshot>>(read);
  }

  std::filesystem::path path_;
  std::unique_ptr<File> opened_;
  std::unique_ptr<MeteredFile> file_;
  CheckpointIndex checkpoint_;
  std::optional<ForeignIndex> foreign_;
  std::map<std::string, TensorSpec> specs_;
  std::map<std::string, const ByteType*> types_;
  std::map<std::string, Digest> digests_;       // by key
  std::map<std::string, std::size_t> sources_;  // by key, where several keys share one
  std::shared_ptr<Snapshot> read_;              // of the last read()
  std::optional<std::size_t> read_source_;
};

Digest digest_in(Weights& weights, const std::string& key) {
  const auto digest = weights.digest(key);
  return digest ? *digest : tensor_digest(weights.read(key));
}

}  // namespace

bool is_foreign_file(const std::filesystem::path& path) { return looks_foreign(*open_checkpoint(path)); }

int diff_weights(const WeightsDiffRequest& request) {
  ReadLimit limit(request.read_limit);
  Weights ours(request.a, limit);
  Weights theirs(request.b, limit);
  std::vector<std::string> common;
  DifferingTensors found;
  found.total = ours.specs().size();
  for (const auto& [key, spec] : ours.specs()) {
    const auto other = theirs.specs().find(key);
    if (other == theirs.specs().end()) {
      found.add_only_in("first", key, spec);
    } else if (other->second.dtype != spec.dtype || other->second.shape != spec.shape) {
      found.add_other_spec(key, spec, other->second);
    } else if (ours.type(key) != theirs.type(key)) {
      const auto name = [dtype = spec.dtype](const ByteType* type) {
        return type == nullptr ? name_of(dtype) : type->name;
      };
      found.others.push_back(printable(key) + ": " + std::string(name(ours.type(key))) + " in the first, " +
                             std::string(name(theirs.type(key))) + " in the second");
    } else if (spec.bytes() != 0) {
      common.push_back(key);
    }
  }
  // By source, so that a storage of many tensors is read once. One at a time: two files may not fit into
  // memory.
  const auto place = [&](const std::string& key) {
    return std::tuple(ours.shared_source(key), theirs.shared_source(key), key);
  };
  std::sort(common.begin(), common.end(),
            [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  for (const std::string& key : common) {
    const TensorSpec& spec = ours.specs().at(key);
    if (ours.digest(key) || theirs.digest(key)) {
      if (digest_in(ours, key) != digest_in(theirs, key)) found.add_unread(key, spec);
      continue;
    }
    const TensorDifference difference = compare_tensors(spec.dtype, ours.read(key), theirs.read(key));
    if (difference.different != 0) found.changed.push_back({key, spec, difference});
  }
  // Back into the order of the keys: "first" is meant by key, not by place in the file.
  std::sort(found.changed.begin(), found.changed.end(),
            [](const DifferingTensor& a, const DifferingTensor& b) { return a.name < b.name; });
  for (const auto& [key, spec] : theirs.specs()) {
    if (!ours.specs().contains(key)) found.add_only_in("second", key, spec);
  }
  if (request.json) {
    found.print_as_json(!found.any(), nlohmann::ordered_json::array());
  } else {
    found.print("weights", request.all);
    std::cout << (found.any() ? "different" : "equal") << '\n';
  }
  return static_cast<int>(found.any() ? ExitCode::difference : ExitCode::complete);
}

}}  // namespace holdfast::v0_2
