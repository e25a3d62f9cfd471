// Which checkpoints belong to one history: those that its attempt wrote, and of every earlier attempt those
// up to the step that it grew from. A file of a branch that was left (a rollback, an attempt that was
// overtaken) belongs to another history, even when its step lies between.
//
// Threads: plain values.
#pragma once

#include "holdfast/store/names.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

struct Lineage {
  AttemptNumber own = 0;
  Ancestry ancestry;

  bool contains(FileId id) const {
    if (id.attempt == own) return true;
    const auto grown_from = ancestry.find(id.attempt);
    return grown_from != ancestry.end() && grown_from->second >= id.step;
  }
};

}  // namespace holdfast::inline v1
