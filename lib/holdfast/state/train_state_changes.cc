// Where the run stands, and what the program has changed since a step boundary.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "holdfast/snapshot/digested_tensors.h"
#include "holdfast/state/internal/component_io.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool counts(const std::string& name, const Attribute& attribute, const std::vector<NamedModule>& modules) {
  // Digests of frozen tensors are compared with the tensors.
  return attribute.role == Role::decides && !name.ends_with(".evaluating") &&
         std::none_of(modules.begin(), modules.end(),
                      [&](const NamedModule& module) { return names_digest(name, module.name); });
}

bool differs(const std::string& name, const at::Tensor& tensor, const Snapshot& image) {
  const auto index = image.layout->find(name);
  if (!index || image.layout->tensors()[*index] != spec_of(name, tensor)) return true;
  std::vector<std::byte> now(image.layout->tensors()[*index].bytes());
  Stager copy;
  copy.add(tensor, now);
  copy.run();
  return std::memcmp(now.data(), image.bytes(*index).data(), now.size()) != 0;
}

}  // namespace

std::vector<std::string> TrainState::changed(const Snapshot* since) {
  if (since == nullptr) return state_->changed_unseen();
  const Snapshot& image = *since;
  const at::NoGradGuard no_grad;
  image.wait_for_arrival();
  const auto list = hold(Hold::list);
  std::vector<std::string> names;
  const bool told = std::exchange(state_->modes_told, true);  // nothing is saved here
  const Attributes now = attributes();
  state_->modes_told = told;
  for (const auto& [name, attribute] : now) {
    const Attribute* const then = image.attributes.find(name);
    if (counts(name, attribute, state_->modules) && (!then || !same_bits(then->value, attribute.value)))
      names.push_back(name);
  }
  for (const auto& [name, attribute] : image.attributes) {
    if (counts(name, attribute, state_->modules) && !now.has(name)) names.push_back(name);
  }
  std::map<std::string, DigestedTensor> digested;
  for (DigestedTensor& each : digested_tensors(image.attributes)) {
    digested.emplace(each.spec.name, std::move(each));
  }
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) {
    const auto then = digested.find(name);
    const bool differ = then == digested.end()
                            ? differs(name, tensor, image)
                            : then->second.spec != spec_of(name, tensor) ||
                                  then->second.digest != state_->frozen.present(name, tensor);
    if (differ) names.push_back(name);
  };
  // An evaluation may have changed sides: frozen buffers are those of modules in evaluation mode.
  for (const ModuleTensor& item : state_->list_tensors()->modules.tensors) {
    if (item.digested) compare(item.name, item.tensor);
  }
  state_->visit_tensors(
      [&](const std::string& name, const at::Tensor& tensor, Part) { compare(name, tensor); });
  for (const State::Part& part : state_->components) {
    internal::ComponentBackup backup;
    internal::BackupWriter writer(part.name, backup);
    part.component->save(writer);
    for (const auto& [name, tensor] : backup.tensors) compare(name, tensor);
  }
  return names;
}

std::vector<std::string> TrainState::State::changed_unseen() {
  if (!frozen.any()) return {};
  const at::NoGradGuard no_grad;
  std::vector<std::string> names = frozen.look_again(list_tensors()->modules);
  if (!names.empty()) held.reset();  // these are stored from now on
  return names;
}

}}  // namespace holdfast::v0_2
