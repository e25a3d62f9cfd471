#include "holdfast/optim/internal/adoption.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/own_optimizer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void refuse_options(const char* optimizer) {
  throw UsageError(std::string(optimizer) +
                   ": a parameter group has the options of another optimizer: make them of its own type");
}

// A fused kernel takes a tensor once for each time it is listed, and the order of such updates is not
// defined.
void require_each_once(const torch::optim::Optimizer& optimizer, const char* name) {
  struct Place {
    std::size_t group, index;
  };
  std::unordered_map<const at::TensorImpl*, Place> first;
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const auto [known, is_new] =
          first.try_emplace(groups[g].params()[i].unsafeGetTensorImpl(), Place{g, i});
      if (is_new) continue;
      const auto text = [](const Place& place) {
        return "parameter " + std::to_string(place.index) + " of group " + std::to_string(place.group);
      };
      throw UsageError(std::string(name) + ": " + text({g, i}) + " is " + text(known->second) +
                       " once more. LibTorch's parameters() lists the parameters of a module that is "
                       "registered twice two times, and torch::optim would update them twice a step. List "
                       "each once, as decay_parameters() of optim/decay_groups.h does, or use torch::optim");
    }
  }
}

void require_slots_here(torch::optim::Optimizer& optimizer, const char* name) {
  // The options carry the mark, because LibTorch's optimizer has no other place for one.
  for (auto& group : optimizer.param_groups()) {
    if (dynamic_cast<const SlotsAway*>(&group.options()) == nullptr) continue;
    throw UsageError(
        std::string(name) +
        ": another optimizer has this one's slots (adopted, or given back): step, adopt and save "
        "that one, or give_back() first");
  }
}

void require_same_way(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer) {
  const auto up = [](torch::optim::Optimizer& one) {
    // LibTorch's own optimizers know only one direction.
    const auto* const own = dynamic_cast<OwnOptimizer*>(&one);
    return own != nullptr && own->maximizes();
  };
  if (up(from) == up(to)) return;
  throw UsageError(
      std::string(optimizer) + ": slots gathered going " + (up(from) ? "up" : "down") +
      " the gradient would go on " + (up(to) ? "up" : "down") +
      ": make both with the same FusedOptions::maximize; torch::optim's go down only (negate the "
      "loss, and the momentum, instead)");
}

void take_slots(torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  // Slots move with their step counts, which a device may still hold.
  if (auto* const own = dynamic_cast<OwnOptimizer*>(&from)) own->settle();
  // Stale states of parameters that `from` does not have must not survive.
  to.state().clear();
  for (auto& [parameter, state] : from.state()) to.state()[parameter] = std::move(state);
  from.state().clear();
}

void give_all(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer) {
  if (&from == &to) throw UsageError(std::string(optimizer) + "::give_back: to itself");
  require_slots_here(from, optimizer);
  auto& ours = from.param_groups();
  auto& theirs = to.param_groups();
  bool alike = ours.size() == theirs.size();
  for (std::size_t g = 0; alike && g < ours.size(); ++g) {
    const auto &here = ours[g].params(), &there = theirs[g].params();
    alike = here.size() == there.size();
    for (std::size_t i = 0; alike && i < here.size(); ++i) alike = here[i].is_same(there[i]);
  }
  if (!alike) {
    throw UsageError(std::string(optimizer) +
                     "::give_back: the other optimizer has other groups or parameters; make it from the same "
                     "ones, in the same order");
  }
  require_same_way(from, to, optimizer);
  // A clone has no mark SlotsAway, so the other optimizer may step again.
  for (std::size_t g = 0; g < ours.size(); ++g) theirs[g].set_options(ours[g].options().clone());
  take_slots(from, to);
}

}}}  // namespace holdfast::v0_2::internal
