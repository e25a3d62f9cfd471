#include "holdfast/state/internal/frozen_tensors.h"

#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/name_list.h"
#include "holdfast/snapshot/digested_tensors.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"
#include "holdfast/state/weights_aside.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kShownNames = 3;

// TensorImpls of the buffers that modules in evaluation mode register.
void add_resting_buffers(const torch::nn::Module& root, std::set<const void*>& out) {
  root.apply([&](const torch::nn::Module& module) {
    if (module.is_training()) return;
    for (const at::Tensor& buffer : module.buffers(/*recurse=*/false)) {
      if (buffer.defined()) out.insert(buffer.unsafeGetTensorImpl());
    }
  });
}

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.find('/')); }

}  // namespace

Digest digest_of_tensor(const at::Tensor& tensor) {
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes;
  if (plain_memory(tensor)) {
    bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
  } else {
    copy.resize(tensor.nbytes());
    Stager stager;
    stager.add(tensor, copy);
    stager.run();
    bytes = copy;
  }
  std::vector<Digest> pieces((bytes.size() + kDigestPiece - 1) / kDigestPiece);
  at::parallel_for(0, static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::size_t at = i * kDigestPiece;
      pieces[i] = digest_of(bytes.subspan(at, std::min<std::size_t>(kDigestPiece, bytes.size() - at)));
    }
  });
  return combine_digests(pieces);
}

FrozenTensors::Look::Look(const at::Tensor& tensor)
    : object_(tensor.getIntrusivePtr()),
      storage_(tensor.storage().getWeakStorageImpl()),
      data_(tensor.const_data_ptr()),
      type_(tensor.scalar_type()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()) {
  if (!tensor.is_inference()) version_ = tensor._version();
}

bool FrozenTensors::Look::still(const at::Tensor& tensor) const {
  return version_ && object_._unsafe_get_target() == tensor.unsafeGetTensorImpl() &&
         storage_._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl() &&
         data_ == tensor.const_data_ptr() && type_ == tensor.scalar_type() && tensor.sizes() == sizes_ &&
         tensor.strides() == strides_ && !tensor.is_inference() && *version_ == tensor._version();
}

void FrozenTensors::add(const std::string& module, const ModuleOptions& options) {
  if (options.frozen == Frozen::digest && options.may_change_shape) {
    throw UsageError(
        "module '" + module +
        "': a digest stands for one shape, so frozen = Frozen::digest excludes may_change_shape: "
        "add the two as two modules");
  }
  if (options.frozen == Frozen::digest) {
    modules_[module] = options;
  } else if (options.frozen_buffers) {
    throw UsageError("module '" + module + "': frozen_buffers needs frozen = Frozen::digest");
  }
}

void FrozenTensors::mark(std::span<const NamedModule> modules, ModuleInventory& inventory) {
  if (modules_.empty()) return;
  std::set<const void*> resting;
  for (const NamedModule& part : modules) {
    const auto known = modules_.find(part.name);
    if (known != modules_.end() && known->second.frozen_buffers) add_resting_buffers(*part.module, resting);
  }
  std::vector<std::string> stored;
  for (ModuleTensor& item : inventory.tensors) {
    if (!modules_.contains(module_of(item.name))) continue;
    Known& known = known_[item.name];
    if (!known.made) known.made = present(item.name, item.tensor);
    const bool frozen =
        item.buffer ? resting.contains(item.tensor.unsafeGetTensorImpl()) : !item.tensor.requires_grad();
    // What trains it may leave no trace: the replay of a CUDA graph counts no version, nor does batch norm
    // for its running statistics.
    if (!frozen || item.buffer) known.seen.reset();
    item.digested = frozen && present(item.name, item.tensor) == *known.made;
    if (frozen && !item.digested && !std::exchange(known.told, true)) stored.push_back(item.name);
  }
  if (stored.empty()) return;
  log_info(
      "frozen tensors that are stored, because their bytes are not those that the program had before "
      "resume(): {}",
      name_list(stored, kShownNames));
}

void FrozenTensors::put_attributes(const ModuleInventory& inventory, Attributes& out) {
  for (const ModuleTensor& item : inventory.tensors) {
    if (item.digested) put_digested({spec_of(item.name, item.tensor), known_.at(item.name).present}, out);
  }
}

Digest FrozenTensors::present(const std::string& name, const at::Tensor& live) {
  Known& known = known_[name];
  const at::Tensor tensor = in_training(live);
  if (!known.seen || !known.seen->still(tensor)) {
    known.seen.emplace(tensor);
    known.present = digest_of_tensor(tensor);
  }
  return known.present;
}

void FrozenTensors::written(const std::string& name) {
  if (const auto known = known_.find(name); known != known_.end()) known->second.seen.reset();
}

std::vector<std::string> FrozenTensors::other_bytes(const ModuleInventory& inventory,
                                                    const Attributes& recorded) {
  std::vector<std::string> names;
  std::map<std::string_view, const ModuleTensor*> here;
  for (const ModuleTensor& item : inventory.tensors) here.emplace(item.name, &item);
  for (const DigestedTensor& there : digested_tensors(recorded)) {
    const auto found = here.find(there.spec.name);
    if (found == here.end()) continue;
    const ModuleTensor& item = *found->second;
    const bool other_form = spec_of(item.name, item.tensor) != there.spec;
    if (other_form && !item.may_change_shape) continue;
    if (other_form || present(item.name, item.tensor) != there.digest) names.push_back(item.name);
  }
  return names;
}

std::vector<std::string> FrozenTensors::look_again(const ModuleInventory& inventory) {
  std::vector<std::string> changed;
  for (const ModuleTensor& item : inventory.tensors) {
    if (!item.digested) continue;
    const Digest before = known_.at(item.name).present;
    written(item.name);
    if (present(item.name, item.tensor) != before) changed.push_back(item.name);
  }
  return changed;
}

}}}  // namespace holdfast::v0_2::internal
