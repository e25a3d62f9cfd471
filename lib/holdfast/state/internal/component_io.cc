#include "holdfast/state/internal/component_io.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/wanted_part.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void SpecWriter::take_tensor(std::string name, const at::Tensor& tensor) {
  out_.push_back(spec_of(std::move(name), tensor));
}

void ImageWriter::take_tensor(std::string name, const at::Tensor& tensor) {
  const TensorSpec spec = spec_of(std::move(name), tensor);
  const auto index = layout_.find(spec.name);
  // The image was laid out by an earlier save(); another tensor now would be copied to the wrong place.
  if (!index || layout_.tensors()[*index] != spec) {
    throw UsageError("tensor '" + spec.name + "' was " + (index ? "of another shape" : "not there") +
                     " a moment ago: save() must write the same each time it is called at one step");
  }
  ++seen_;
  const bool in_cuda = internal::in_cuda(tensor);
  seen_in_cuda_ = seen_in_cuda_ || in_cuda;
  // A device's tensors are copied late, the host's early; each pass takes its own.
  if (part_ != Part::all && (part_ == Part::late) != in_cuda) return;
  const WantedPart part = wanted_part(tensor, layout_, *index, image_);
  if (part.to.empty()) return;
  // Always early: the program's own code may change a component at any moment, so its tensors are never
  // fetched from live memory.
  if (devices_ != nullptr) return devices_->add(spec.name, part.tensor, part.to, true);
  Stager copy;
  copy.add(part.tensor, part.to);
  copy.run();
}

void AttributeWriter::take_attribute(std::string name, AttributeValue value, Role role) {
  if (out_.has(name)) throw UsageError("the state writes '" + name + "' twice");
  out_.set(std::move(name), std::move(value), role);
}

void BackupWriter::take_tensor(std::string name, const at::Tensor& tensor) {
  // On the host and as a copy: load() may change the program's tensor, and the backup must not follow.
  const at::NoGradGuard no_grad;
  out_.tensors.insert_or_assign(std::move(name), tensor.detach().cpu().clone());
}

void BackupWriter::take_attribute(std::string name, AttributeValue value, Role role) {
  // No name comes twice here: load() has run AttributeWriter over the same save() before.
  out_.attributes.set(std::move(name), std::move(value), role);
}

at::Tensor ComponentReader::get_tensor(std::string_view name) const {
  const std::string full = tensor_name(name);
  // An index that is missing means another program, not damage: all bytes have been verified.
  if (!holds(full)) {
    throw RefusedError("the recorded state has no tensor '" + full +
                       "': it was written by another program or another version of it");
  }
  return copy(full);
}

bool SnapshotReader::holds(const std::string& name) const { return snapshot_.layout->find(name).has_value(); }

at::Tensor SnapshotReader::copy(const std::string& name) const {
  const std::size_t index = snapshot_.layout->find(name).value();
  at::Tensor tensor = empty_like_spec(snapshot_.layout->tensors()[index], std::nullopt, at::kCPU);
  Stager copy;
  copy.add(snapshot_.bytes(index), tensor);
  copy.run();
  return tensor;
}

bool BackupReader::holds(const std::string& name) const { return backup_.tensors.contains(name); }

// A clone, because get_tensor() promises a new tensor: a component that reads a name twice may change one of
// them.
at::Tensor BackupReader::copy(const std::string& name) const { return backup_.tensors.at(name).clone(); }

}}}  // namespace holdfast::v0_2::internal
