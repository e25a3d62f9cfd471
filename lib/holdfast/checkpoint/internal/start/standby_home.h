// What a standby does with a HOME (mirror/home.h). While another machine holds the run it reads what HOME
// says about that machine, and fetches each newer checkpoint into the run directory. It claims nothing.
//
//   const HomeWord word = home.look();
//   home.fetch();                              // on the reading thread
//   if (home.claim(word.highest)) home.prepare();
//
// Errors: IoError, HomeError: look again. Those of `hear_stop`, which ends any call but fetch(). Threads:
// fetch() on one, all others on the training thread; stop() any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/home_notes.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/mirror/start.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StandbyHome {
 public:
  // `run` outlives this object. `hear_stop` throws if the program is told to stop. UsageError for a malformed
  // place.
  StandbyHome(Run& run, const std::string& place, std::function<void()> hear_stop);

  const HomeWord& look();
  // Fetches what is newest there into the run directory. A failure leaves nothing that the next call goes on
  // from. Not beside the other calls, but for stop() and look().
  void fetch();
  // Ends a fetch in progress.
  void stop() { stopped_ = true; }
  // How often put_sign() is to be called.
  Duration renews() const { return home_->is_store() ? kInStore : kStandbyRenews; }
  // A holder that lives has seen the sign, and renewed its word, after this time.
  Duration words_take() const { return std::chrono::seconds(home_->is_store() ? 40 : 15); }
  void put_sign(const StandbySign& sign) { home_->put_note(kStandbyName, to_json(sign)); }
  // A claim was sent, or is held: go on with claim() and prepare(), whatever a look says.
  bool is_claiming() const { return after_.has_value(); }
  // Claims the run in HOME after the holder's attempt. False: another start was quicker, so stand by again.
  bool claim(AttemptNumber after);
  // Fetches what is missing, and lets the next claim in the run directory be the number that was won. False:
  // a newer start has taken the run over meanwhile, so stand by again.
  bool prepare();
  // Takes the sign back. If the run was claimed and not begun, others learn that they may go on. Best effort.
  void leave() noexcept;

 private:
  static constexpr Duration kInStore = std::chrono::seconds(10);

  void open();
  void say(RunPhase phase, const std::string& reason, AttemptNumber attempt) noexcept;

  Run& run_;
  const std::string place_;
  const std::function<void()> hear_stop_;
  std::atomic<bool> stopped_{false};
  bool deaf_ = false;  // to a stop
  bool seen_ = false;  // somebody's attempt in HOME
  holdfast::Pace pace_;
  holdfast::Pace ahead_pace_;
  std::unique_ptr<Home> home_;
  std::unique_ptr<HolderWatch> watch_;
  std::optional<AttemptNumber> after_;  // of claim(), until its outcome is known and used
  AttemptNumber claimed_ = 0;
  std::unique_ptr<Home> ahead_home_;
  std::unique_ptr<FetchAhead> ahead_;  // null: before the first, or the last one failed
};

}}}  // namespace holdfast::v0_2::internal
