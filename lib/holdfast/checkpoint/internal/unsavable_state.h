// Whether the state is one that no save can bring back, as the errors of its saves tell. Then the run ends,
// unless the program trains on unsaved (WritingOptions::train_unsaved).
//
// Errors: refuse() throws UnsavableError. Threads: the training thread.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class UnsavableState {
 public:
  explicit UnsavableState(bool trains_on) : trains_on_(trains_on) {}

  // An error of a save, or of its preparation.
  void learn_from(const std::exception& error) {
    if (!trains_on_ && dynamic_cast<const UnsavableError*>(&error) != nullptr) why_ = error.what();
  }
  bool known() const { return why_.has_value(); }
  // As all have voted, so none is lost to the others before they know why. `rank`: whose state cannot be
  // saved; −1: nobody's.
  void refuse_for(int rank) {
    if (rank < 0) return;
    if (!why_) why_ = "the state of rank " + std::to_string(rank) + " cannot be saved; its log says why";
    refuse();
  }
  void refuse() const {
    if (!why_) [[likely]]
      return;
    throw UnsavableError(*why_ +
                         ". The run ends here, and its newest checkpoint stands "
                         "(WritingOptions::train_unsaved goes on without saves)");
  }

 private:
  const bool trains_on_;
  std::optional<std::string> why_;
};

}}}  // namespace holdfast::v0_2::internal
