// Remembers what one source has reported about the end of its machine, so that it reports each thing once.
//
// A service lists events, each with an end. For one event the earliest end ever named counts, so a time that
// slides gains nothing. Of all events the earliest counts, until the service removes it or the machine has
// outlived it by a minute (kAliveAfter); then the earliest of the others. An outlived event that names a
// future time begins anew, and so does one that announced sleep and now announces the end.
//
// To replace an earlier end it reports a withdrawal and a new announcement, because a Monitor keeps the
// earliest deadline of a source. Errors: bad_alloc. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Times farther away are not believed: they are mistakes.
inline constexpr Duration kFarthestEnd = std::chrono::hours(24 * 365);

// `time` on the steady clock; nullopt if it has passed or is too far away. `service_now` is the wall clock of
// the service that named it, if known. This machine's clock may be wrong, so it counts only without a result
// from that one.
std::optional<SteadyTime> believed(std::optional<WallTime> time, const Clock& clock,
                                   std::optional<WallTime> service_now = {});

struct ListedEnd {
  std::string event = {};               // the service's name for it; at most one listed event has none
  std::optional<SteadyTime> when = {};  // unset: no believable time
  bool hibernates = false;
  std::string text = {};  // for people
};

class AnnouncedEnd {
 public:
  // `name`: the source's. `unknown`: time from the first sight to the end if no time is believable.
  AnnouncedEnd(Clock& clock, std::string_view name, Duration unknown);

  // The service lists these, at least one. Adds notices for news: the first event, an earlier end, an end of
  // another kind, or a replacement of one that is removed or outlived.
  void coming(const std::vector<ListedEnd>& listed, std::vector<Notice>& news);
  // The service lists nothing. Adds a withdrawal if it listed something before.
  void nothing(std::string text, std::vector<Notice>& news);
  bool told() const { return told_ || lost_withdrawal(); }
  // The last news did not arrive (no memory): the next call repeats it.
  void tell_again() { arrived_ = false; }

 private:
  struct End {
    SteadyTime earliest;
    bool hibernates = false;
    const ListedEnd* listed = nullptr;  // set during coming()
  };
  struct Told {
    SteadyTime deadline;
    bool hibernates = false;
    bool replaces = false;  // it replaces an earlier one
  };

  void update(const ListedEnd& listed, SteadyTime now);
  const End* earliest(SteadyTime now) const;
  bool lost_withdrawal() const { return withdrawn_ && !arrived_; }

  Clock& clock_;
  std::string name_;
  Duration unknown_;
  std::map<std::string, End> ends_;  // of the listed events
  std::optional<Told> told_;
  bool withdrawn_ = false;  // the last report was a withdrawal
  bool arrived_ = true;
};

}}}  // namespace holdfast::v0_2::internal
