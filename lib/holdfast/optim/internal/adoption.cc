#include "holdfast/optim/internal/adoption.h"

#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/own_optimizer.h"

namespace holdfast::inline v1::internal {

void refuse_options(const char* optimizer) {
  throw UsageError(std::string(optimizer) +
                   ": a parameter group has the options of another optimizer: make them of its own type");
}

void take_slots(torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  if (auto* const own = dynamic_cast<OwnOptimizer*>(&from)) own->settle();
  to.state().clear();
  for (auto& [parameter, state] : from.state()) to.state()[parameter] = std::move(state);
  from.state().clear();
}

void give_all(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer) {
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
  for (std::size_t g = 0; g < ours.size(); ++g) theirs[g].set_options(ours[g].options().clone());
  take_slots(from, to);
}

}  // namespace holdfast::inline v1::internal
