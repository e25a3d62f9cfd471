#include "holdfast/mirror/home_notes.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using std::chrono::seconds;

// Of the mirror.
constexpr Duration kTellAgain = seconds(10);  // while a standby waits: --takeover-after is at least 30 s
constexpr Duration kAfterFailure = seconds(10);
constexpr Duration kLookInDirectory = seconds(2);
constexpr Duration kLookInStore = seconds(30);
constexpr Duration kLookInStoreOften = seconds(5);
constexpr Duration kSignIsOld = seconds(60);
// Of the standby, in a store.
constexpr Duration kReadNote = seconds(2);
constexpr Duration kList = seconds(15);
constexpr Duration kListForNote = seconds(5);  // while the newest attempt has said nothing
constexpr std::size_t kLongestReason = 1000;

}  // namespace

std::optional<RunState> holder_word(Home& home, AttemptNumber attempt) {
  if (attempt == 0) return std::nullopt;
  const auto text = home.note(holder_name(attempt));
  return text ? run_state_from_json(*text) : std::nullopt;
}

HomeWord home_word(Home& home) { return HolderWatch(home).look(SteadyTime{}); }

void tell_holder(Home& home, RunState state, AttemptNumber attempt) {
  if (state.attempt != attempt && state.attempt != 0) state.copy_of = state.attempt;
  state.attempt = attempt;
  state.reason = printable(state.reason, kLongestReason);
  home.put_note(holder_name(attempt), to_json(state));
}

const HomeWord& HolderWatch::look(SteadyTime now) {
  const bool lists = now >= next_list_;
  if (lists) {
    word_ = {.highest = home_.highest()};
    const auto files = home_.list();
    if (!files.empty()) word_.newest = checkpoint_name(files.front().id);
  }
  if (lists || now >= next_note_) {
    word_.holder = holder_word(home_, word_.highest);
    next_note_ = home_.is_store() ? now + kReadNote : now;
  }
  if (lists && home_.is_store()) next_list_ = now + (word_.holder ? kList : kListForNote);
  return word_;
}

bool HolderNotes::due(const News& news, SteadyTime now) const {
  if (now < not_before_) return false;
  return now >= next_look_ || (standby_ && now >= tell_again_) ||
         (news.urgent && next_look_ > now + kLookInStoreOften);
}

void HolderNotes::exchange(Directory& run, const News& news, const Clock& clock) {
  const SteadyTime now = clock.now();
  if (now < not_before_ && !news.urgent) return;
  not_before_ = now + kAfterFailure;
  tell(run, news, clock);
  look(run, news.urgent, now);
  not_before_ = {};
}

void HolderNotes::tell(Directory& run, const News& news, const Clock& clock) {
  if (news.covers == 0) return;
  const LastWord word = last_word(run);
  RunState state{.phase = RunPhase::starting, .host = host_name()};
  if (word.state && word.attempt >= news.awaits) state = *word.state;
  const bool ended = is_end(state.phase);
  // A standby that hears of the end goes on from what is home.
  if (ended && !news.all_home) return;
  const std::string what = std::to_string(news.covers) + " " + word_of(state.phase);
  const SteadyTime now = clock.now();
  if (what == told_ && (!standby_ || now < tell_again_)) return;
  if (!ended) state.time = format_utc(clock.wall_now());
  tell_holder(home_, std::move(state), news.covers);
  told_ = what;
  tell_again_ = now + kTellAgain;
}

void HolderNotes::look(Directory& run, bool urgent, SteadyTime now) {
  const Duration often = home_.is_store() ? kLookInStoreOften : kLookInDirectory;
  if (now < next_look_) {
    // It was planned before the end was announced.
    if (urgent) next_look_ = std::min(next_look_, now + often);
    return;
  }
  const auto sign = home_.note(kStandbyName);
  if (sign && *sign != sign_) {
    sign_ = *sign;
    sign_changed_ = now;
    write_note(run, kStandbyName, sign_);
  }
  // The trainer notices by itself that a sign gets old.
  if (!sign && std::exchange(sign_, {}) != "") run.unlink(kStandbyName);
  standby_ = sign && now < sign_changed_ + kSignIsOld;
  next_look_ = now + (home_.is_store() && !standby_ && !urgent ? kLookInStore : often);
}

}}  // namespace holdfast::v0_2
