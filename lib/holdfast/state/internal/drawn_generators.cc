#include "holdfast/state/internal/drawn_generators.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// A callback of LibTorch is a plain function, so what it hears is a global. Leaked: an operator may run on a
// thread that outlives static objects.
struct Ear {
  std::mutex mutex;
  int listeners = 0;
  at::CallbackHandle handle{};
  std::vector<DrawnGenerator> heard;
};
// Made at the first use, so that no order of static objects matters.
Ear& ear() {
  static auto* const one = new Ear();
  return *one;
}

std::unique_ptr<at::ObserverContext> hear(const at::RecordFunction& function) {
  for (const c10::IValue& input : function.inputs()) {
    if (!input.isGenerator()) continue;
    Ear& all = ear();
    const std::lock_guard lock(all.mutex);
    // Callbacks run on the threads of the program, several at a time.
    const at::Generator generator = input.toGenerator();
    const bool known = std::any_of(all.heard.begin(), all.heard.end(),
                                   [&](const DrawnGenerator& one) { return one.generator == generator; });
    // An undefined generator stands for the device's default one, which is a part of every state.
    if (known || !generator.defined()) continue;
    try {
      // An exception must not reach the operator of the program.
      all.heard.push_back({generator, function.name()});
    } catch (const std::bad_alloc&) {  // unheard
    }
  }
  return nullptr;
}

}  // namespace

DrawnGenerators::DrawnGenerators() {
  Ear& all = ear();
  const std::lock_guard lock(all.mutex);
  if (all.listeners++ > 0) return;
  // The least that is needed: inputs of operators, and no scopes of users.
  all.handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&hear).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

DrawnGenerators::~DrawnGenerators() {
  Ear& all = ear();
  const std::lock_guard lock(all.mutex);
  if (--all.listeners > 0) return;
  at::removeCallback(all.handle);
  // A generator that stayed in this list would live on after the program has dropped it.
  all.heard.clear();
}

std::vector<DrawnGenerator> DrawnGenerators::heard() const {
  Ear& all = ear();
  const std::lock_guard lock(all.mutex);
  // Nobody but this list holds it any more, so the program has dropped it.
  for (DrawnGenerator& one : all.heard) one.outlived = one.generator.getIntrusivePtr().use_count() == 1;
  return all.heard;
}

}}}  // namespace holdfast::v0_2::internal
