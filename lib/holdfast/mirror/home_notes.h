// What the owner of HOME and a standby elsewhere tell each other there, in `attempts`: N.holder.json says how
// attempt N stands (only the machine that has claimed N writes it), standby.json who waits (standby_sign.h).
// No claim depends on them, and they may be old.
//
// In a store each look costs a request, and starts a program. So a mirror looks for a standby every 30 s, and
// every five seconds while one waits or an end is announced. A standby reads the holder's word every two
// seconds, and lists every 15 s. A directory is looked at more often.
//
// Errors: those of Home. Threads: plain values.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/mirror/home.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {

struct HomeWord {
  AttemptNumber highest = 0;  // read first: a claim that comes between is higher
  std::string newest = {};    // name of the newest checkpoint there; empty: none
  // What the owner of the highest attempt says; nullopt: nothing yet.
  std::optional<RunState> holder = {};
};

// Changes nothing.
HomeWord home_word(Home& home);
// What the owner of that attempt says; nullopt: nothing yet.
std::optional<RunState> holder_word(Home& home, AttemptNumber attempt);
// Requires the claim of `attempt`. `state` is said about it.
void tell_holder(Home& home, RunState state, AttemptNumber attempt);

// What a standby knows about the holder.
class HolderWatch {
 public:
  // `home` outlives this object.
  explicit HolderWatch(Home& home) : home_(home) {}
  // Asks HOME where that is due.
  const HomeWord& look(SteadyTime now);
  // The next look asks everything.
  void forget() { next_list_ = {}; }

 private:
  Home& home_;
  HomeWord word_;
  SteadyTime next_list_{};
  SteadyTime next_note_{};
};

// What the mirror of the holder passes on: how the run stands goes there, and the sign of a standby comes
// here, where the trainer sees it.
class HolderNotes {
 public:
  struct News {
    AttemptNumber covers = 0;  // the highest number that this machine has claimed there; 0: none
    AttemptNumber awaits = 0;  // a start has claimed this number for a trainer: older attempts are over
    bool all_home = false;     // all that is durable here; only then an end is told
    bool urgent = false;       // an end is announced, or the run ends
  };

  // `home` outlives this object.
  explicit HolderNotes(Home& home) : home_(home) {}
  bool due(const News& news, SteadyTime now) const;
  // Requires claim(), unless `covers` is 0.
  void exchange(Directory& run, const News& news, const Clock& clock);

 private:
  void tell(Directory& run, const News& news, const Clock& clock);
  void look(Directory& run, bool urgent, SteadyTime now);

  Home& home_;
  std::string told_;         // attempt and phase, as HOME has them
  SteadyTime tell_again_{};  // while a standby waits
  SteadyTime next_look_{};   // for its sign
  SteadyTime not_before_{};  // after a failure
  std::string sign_;
  SteadyTime sign_changed_{};
  bool standby_ = false;  // one waits
};

}}  // namespace holdfast::v0_2
