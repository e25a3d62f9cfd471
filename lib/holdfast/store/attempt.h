// One process life of a run, and the fence around it: the claim `attempts/<n>`. Claims only ever grow, and
// the highest owns the directory; whoever sees a higher one than its own has been superseded for good. A
// claim's existence is all that counts. What is in it (host, boot id) is for people, and may be empty or
// torn.
//
// Errors: IoError; RefusedError when the numbers are used up or `only` is taken; SupersededError from look().
// Threads: one at a time. Durability: when the constructor returns, the claim survives power loss.
#pragma once

#include <string>

#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

namespace internal {
class RunDirectory;
}

// What a claim says in "by" when it is a prune's.
inline constexpr char kClaimedByPrune[] = "prune";

// The highest attempt that any claim, checkpoint, `.damaged`, state or temporary name tells of; 0: none.
AttemptNumber highest_attempt(const Directory& run, const Directory* attempts);

class Attempt {
 public:
  // Claims 1 + the highest attempt. `directory` outlives this object. `by` is written into the claim: which
  // program, where it is none that trains. `only`: that number or none; RefusedError when it is taken.
  explicit Attempt(internal::RunDirectory& directory, const std::string& by = {}, AttemptNumber only = 0);

  AttemptNumber number() const { return number_; }
  // Looks for newer claims. Throws SupersededError when there is one, when the own claim is gone (somebody
  // emptied the directory), and at every call after that.
  void look();
  // Throws as look() will from now on.
  [[noreturn]] void supersede(const std::string& what);
  bool superseded() const { return !superseded_by_.empty(); }
  const std::string& superseded_by() const { return superseded_by_; }

 private:
  internal::RunDirectory& directory_;
  AttemptNumber number_ = 0;
  std::string superseded_by_;
};

}  // namespace holdfast::inline v1
