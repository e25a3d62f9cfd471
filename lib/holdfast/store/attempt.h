// One process life of a run, and the fence around it: the claim `attempts/<n>`. Claim numbers only grow, and
// the highest claim owns the directory. An attempt that sees a higher claim than its own is superseded for
// good. Only the existence of a claim counts. Its content (claim.h) is for people and wrappers, and may be
// empty or torn; lies_in() alone compares it.
//
// Errors: IoError; RefusedError if the numbers are used up or `only` is taken; SupersededError from
// check_not_superseded(). Threads: one at a time.
// Durability: when the constructor returns, the claim survives power loss.
#pragma once

#include <string>

#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
class RunDirectory;
}

// The values of "by" in the claims of a prune, an import, a mirror and a takeover.
inline constexpr char kClaimedByPrune[] = "prune";
inline constexpr char kClaimedByImport[] = "import";
inline constexpr char kClaimedByMirror[] = "mirror";
inline constexpr char kClaimedByTakeover[] = "takeover";
// True if `by` names a program that claims a directory but never trains there.
inline bool never_trains(const std::string& by) {
  return by == kClaimedByPrune || by == kClaimedByImport || by == kClaimedByMirror ||
         by == kClaimedByTakeover;
}

// The highest attempt in the names of claims, states, checkpoints, `.damaged` and temporary files; 0: none.
AttemptNumber highest_attempt(const Directory& run, const Directory* attempts);
AttemptNumber highest_attempt(Directory& run);  // opens `attempts` itself

class Attempt {
 public:
  // Claims 1 + the highest attempt, but `least` at least. `directory` outlives this object. `by` is written
  // into the claim; it names a program that does not train. `only`, unless 0: claim that number, or throw
  // RefusedError if it is taken. `highest_own` becomes the highest claim made, also where this throws: that
  // claim is there, and may not be durable. It outlives this object.
  Attempt(internal::RunDirectory& directory, AttemptNumber& highest_own, const std::string& by,
          AttemptNumber only, AttemptNumber least);

  AttemptNumber number() const { return number_; }
  // Claims one more number, `least` at least, for the same owner: from then on only higher claims than that
  // supersede. number() and the temporary files keep their number. Requires: not superseded.
  AttemptNumber claim_further(const std::string& by, AttemptNumber only, AttemptNumber least);
  // True if the own claim lies in `attempts`. False for a claim of that number with another content: a path
  // may lead to another run directory by now.
  bool lies_in(Directory& attempts) const;
  // Looks for newer claims. Throws SupersededError if there is one, if the own claim is gone (somebody
  // emptied the directory), and at every later call.
  void check_not_superseded();
  // Throws SupersededError, and makes every later check_not_superseded() throw it too.
  [[noreturn]] void supersede(const std::string& what);
  bool superseded() const { return !superseded_by_.empty(); }
  const std::string& superseded_by() const { return superseded_by_; }

 private:
  AttemptNumber claim_next(const std::string& by, AttemptNumber only, AttemptNumber least);

  internal::RunDirectory& directory_;
  AttemptNumber number_ = 0;
  std::string text_;            // of the claim number_
  AttemptNumber& highest_own_;  // number_, or a further claim
  std::string superseded_by_;
};

}}  // namespace holdfast::v0_2
