// A TrainState to which chosen parts are not added, as if their line were missing in the trainer. The trainers
// are compiled with it in the place of TrainState.
#pragma once

#include <set>
#include <string>
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
  template <class T>
  void value(const std::string& name, T&& variables) {
    if (!names().contains(name)) state_.value(name, std::forward<T>(variables));
  }
  void rates_follow_position() { state_.rates_follow_position(); }
  std::int64_t step() const { return state_.step(); }
  operator SnapshotSource&() { return state_; }  // NOLINT(google-explicit-constructor)

 private:
  TrainState state_;
};

}  // namespace holdfast

#define TrainState LeavingOut  // NOLINT(cppcoreguidelines-macro-usage)
