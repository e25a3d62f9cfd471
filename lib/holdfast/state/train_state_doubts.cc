// What TrainState tells the program, and its parts: doubts(), what was probably forgotten, found at the first
// save; learn(), rates_follow_position().
#include <algorithm>
#include <set>
#include <utility>

#include "holdfast/state/internal/first_look.h"
#include "holdfast/state/internal/train_state_parts.h"

namespace holdfast { inline namespace v0_2 {

std::string TrainState::State::drawn_elsewhere() const {
  if (!drawn) return {};
  const auto known = streams();
  std::string text;
  for (const internal::DrawnGenerator& one : drawn->heard()) {
    const bool in_state = std::any_of(known.begin(), known.end(), [&](const NamedGenerator& stream) {
      return stream.generator == one.generator;
    });
    // A stream that was dropped since cannot matter to a later step.
    if (in_state || one.outlived) continue;
    text += (text.empty() ? "" : ", ") + one.by + " drew from a generator of " +
            one.generator.device().str() + " (seed " + std::to_string(one.generator.current_seed()) + ")";
  }
  if (text.empty()) return {};
  return text + " that is not in the state: state.add_generator(\"name\", generator)";
}

void TrainState::State::forget_drawn() {
  // The first updates are enough; after that the callback would only cost time.
  if (++updates_heard < kUpdatesHeard) return;
  drawn_text = drawn_elsewhere();
  drawn.reset();
}

// Asked at each save, because most schedules change nothing before the first one.
std::string TrainState::State::rates_of_nobody() {
  rates_told = rates_told || std::any_of(components.begin(), components.end(),
                                         [](const Part& part) { return part.component->may_know_rates(); });
  if (rates_told) return {};
  std::string names;
  for (const OptimizerState& part : optimizers) {
    if (part.rate_changed()) names += (names.empty() ? "'" : ", '") + part.name() + "'";
  }
  if (names.empty()) return {};
  rates_told = true;
  return "optimizer " + names +
         ": its learning rate changed since the start and nothing in the state says what changes it, so a "
         "resumed run may change it at other steps. Add the schedule (state.add(\"schedule\", schedule)) or "
         "the "
         "variables of the loop that decide (state.value). If the step, the epoch and the present rate alone "
         "decide, say state.rates_follow_position()";
}

void TrainState::rates_follow_position() { state_->rates_told = true; }

void TrainState::learn(const StepNews& news) {
  if (news.skipped) ++state_->skipped;
  state_->early.insert(news.early.begin(), news.early.end());
  if (!news.stop) return;
  for (const State::Part& part : state_->components) part.component->told_to_stop();
}

std::vector<std::string> TrainState::doubts() {
  State& state = *state_;
  if (!state.updated) return {};
  std::vector<std::string> texts = {state.rates_of_nobody()};
  std::erase(texts, "");
  // Once, after the first update: only then gradients and slots exist.
  if (std::exchange(state.doubted, true)) return texts;
  std::string reassigned = state.buffers.reassigned(state.modules);  // first: an inventory holds buffers, too
  const auto list = state.list_tensors();
  const ModuleInventory& inventory = list->modules;
  std::set<const void*> trained = trained_by(state.optimizers);
  for (const State::Part& part : state.components) {
    for (const at::Tensor& tensor : part.component->trained()) trained.insert(tensor.unsafeGetTensorImpl());
  }
  texts.push_back(internal::untrained_parameters(inventory, trained));
  texts.push_back(internal::parameters_without_gradient(inventory, state.optimizers));
  texts.push_back(std::move(reassigned));
  texts.push_back(state.drawn ? state.drawn_elsewhere() : state.drawn_text);
  state.drawn.reset();
  const bool position = state.position_told || std::any_of(state.components.begin(), state.components.end(),
                                                           [](const State::Part& part) {
                                                             return part.component->may_know_position();
                                                           });
  if (!position) {
    texts.emplace_back(
        "no part of it knows the position in the data, and after_step() gets no .applied: a resumed run "
        "would begin its data anew. Add the order (state.add(\"data\", order)); a program that draws its "
        "batches from LibTorch's generators or has one batch alone says .applied = {{epoch, sample}}");
  }
  std::erase(texts, "");
  return texts;
}

}}  // namespace holdfast::v0_2
