// Which checkpoints belong to one history: those of its own attempt, and of every earlier attempt those up to
// the step that the history continued from. A file of an abandoned branch (a rollback, a superseded attempt)
// belongs to another history, even if its step lies in between.
//
// Errors: none. Threads: plain values.
#pragma once

#include "holdfast/store/names.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

struct Lineage {
  AttemptNumber own = 0;
  Ancestry ancestry;

  bool contains(FileId id) const {
    if (id.attempt == own) return true;
    const auto grown_from = ancestry.find(id.attempt);
    return grown_from != ancestry.end() && grown_from->second >= id.step;
  }
};

}}  // namespace holdfast::v0_2
