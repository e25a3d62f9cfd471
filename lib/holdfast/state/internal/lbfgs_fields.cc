#include "holdfast/state/internal/lbfgs_fields.h"

#include <array>
#include <cstdint>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using State = torch::optim::LBFGSParamState;

std::array<std::pair<const char*, at::Tensor*>, 3> vectors(State& state) {
  return {{{"d", &state.d()}, {"H_diag", &state.H_diag()}, {"prev_flat_grad", &state.prev_flat_grad()}}};
}

std::array<std::pair<const char*, std::deque<at::Tensor>*>, 3> queues(State& state) {
  return {{{"old_dirs", &state.old_dirs()}, {"old_stps", &state.old_stps()}, {"ro", &state.ro()}}};
}

std::string numbered(const char* name, std::size_t index) {
  return std::string(name) + "." + std::to_string(index);
}

}  // namespace

std::vector<LbfgsField> lbfgs_fields(State& state) {
  std::vector<LbfgsField> fields;
  for (const auto& [name, tensor] : vectors(state)) {
    // An undefined tensor is a state of its own: LBFGS behaves otherwise in its first step.
    if (tensor->defined()) fields.push_back({name, tensor});
  }
  for (const auto& [name, queue] : queues(state)) {
    for (std::size_t i = 0; i < queue->size(); ++i) fields.push_back({numbered(name, i), &(*queue)[i]});
  }
  if (auto& al = state.al()) {
    for (std::size_t i = 0; i < al->size(); ++i) {
      if ((*al)[i].defined()) fields.push_back({numbered("al", i), &(*al)[i]});
    }
  }
  return fields;
}

void put_lbfgs_attributes(const std::string& prefix, State& state, Attributes& out) {
  out.set(prefix + ".func_evals", state.func_evals());
  out.set(prefix + ".n_iter", state.n_iter());
  out.set(prefix + ".t", state.t());
  out.set(prefix + ".prev_loss", state.prev_loss());
  std::vector<std::string> defined;
  for (const auto& [name, tensor] : vectors(state)) {
    if (tensor->defined()) defined.emplace_back(name);
  }
  out.set(prefix + ".vectors", std::move(defined));
  for (const auto& [name, queue] : queues(state)) {
    out.set(prefix + "." + name, static_cast<std::int64_t>(queue->size()));
  }
  if (const auto& al = state.al()) {  // an absent list differs from an empty one
    // LBFGS fills this list only as far as its history reaches; the other entries stay undefined.
    std::vector<std::int64_t> used;
    for (std::size_t i = 0; i < al->size(); ++i) {
      if ((*al)[i].defined()) used.push_back(static_cast<std::int64_t>(i));
    }
    out.set(prefix + ".al", static_cast<std::int64_t>(al->size()));
    out.set(prefix + ".al_used", std::move(used));
  }
}

void fill_lbfgs(const std::string& prefix, const Attributes& recorded, std::int64_t longest_history,
                const std::function<at::Tensor(const std::string& name)>& tensor, State& state) {
  const auto length = [&](const char* name) {
    const std::int64_t count = recorded.get_int(prefix + "." + name);
    // The count comes from a file and decides how much is allocated.
    if (count < 0 || count > longest_history) {
      throw RefusedError("attribute '" + prefix + "." + name + "' is " + std::to_string(count) +
                         ", but the history has at most " + std::to_string(longest_history) + " entries");
    }
    return static_cast<std::size_t>(count);
  };
  state.func_evals(recorded.get_int(prefix + ".func_evals"));
  state.n_iter(recorded.get_int(prefix + ".n_iter"));
  state.t(recorded.get_double(prefix + ".t"));
  state.prev_loss(recorded.get_double(prefix + ".prev_loss"));
  for (const std::string& name : recorded.get_strings(prefix + ".vectors")) {
    for (const auto& [known, target] : vectors(state)) {
      // An unknown name takes no tensor, and the caller refuses tensors that are left over.
      if (name == known) *target = tensor(name);
    }
  }
  for (const auto& [name, queue] : queues(state)) {
    queue->resize(length(name));
    for (std::size_t i = 0; i < queue->size(); ++i) (*queue)[i] = tensor(numbered(name, i));
  }
  // LBFGS tells an absent list from an empty one.
  if (!recorded.has(prefix + ".al")) return;
  std::vector<at::Tensor> al(length("al"));
  for (const std::int64_t i : recorded.get_ints(prefix + ".al_used")) {
    if (i < 0 || static_cast<std::size_t>(i) >= al.size()) {
      throw RefusedError("attribute '" + prefix + ".al_used' points beyond its list");
    }
    al[static_cast<std::size_t>(i)] = tensor(numbered("al", static_cast<std::size_t>(i)));
  }
  state.al(std::move(al));
}

}}}  // namespace holdfast::v0_2::internal
