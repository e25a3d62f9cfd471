// A TrainState to which chosen parts are not added, as if their line were missing in the trainer. "loop.1" is
// the second variable of state.value("loop", …). The trainers are compiled with this class in the place of
// TrainState.
#pragma once

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "holdfast/holdfast.h"

namespace holdfast {

class LeavingOut {
 public:
  static std::set<std::string>& names() {
    static std::set<std::string> all;
    return all;
  }
  template <class T>
  void add(const std::string& name, T& part) {
    if (!names().contains(name)) state_.add(name, part);
  }
  void add(const std::string& name, torch::nn::Module& module, const ModuleOptions& options) {
    if (!names().contains(name)) state_.add(name, module, options);
  }
  void add(const std::string& name, torch::optim::Optimizer& optimizer, const OptimizerOptions& options) {
    if (!names().contains(name)) state_.add(name, optimizer, options);
  }
  template <class T>
  void value(const std::string& name, T& variable) {
    if (!names().contains(name)) state_.value(name, variable);
  }
  template <class... T>
  void value(const std::string& name, std::tuple<T&...>&& variables) {
    if (!names().contains(name)) add_some(name, variables, std::index_sequence_for<T...>());
  }
  void rates_follow_position() { state_.rates_follow_position(); }
  std::int64_t step() const { return state_.step(); }
  operator SnapshotSource&() { return state_; }  // NOLINT(google-explicit-constructor)

 private:
  template <class... T, std::size_t... I>
  void add_some(const std::string& name, const std::tuple<T&...>& variables, std::index_sequence<I...>) {
    state_.value(name, std::tie(chosen(name + "." + std::to_string(I), std::get<I>(variables))...));
  }
  // A variable that is left out has a copy in the state, which nobody changes or reads.
  template <class T>
  static T& chosen(const std::string& name, T& variable) {
    static std::deque<T> copies;
    return names().contains(name) ? copies.emplace_back(variable) : variable;
  }

  TrainState state_;
};

}  // namespace holdfast

#define TrainState LeavingOut  // NOLINT(cppcoreguidelines-macro-usage)
