// What one source has told about the end of its machine, so that it tells each thing once.
//
// A service lists events, each with an end. Of one event the earliest end that was ever named counts: times
// that slide gain nothing. Of all that are listed the earliest counts, until the service takes that event
// back, or the machine has outlived its end by a minute (kOutlived). Then the earliest of the rest counts;
// and an event whose end was outlived and that names a time to come begins anew, as does one that
// announced sleep and now announces the end.
//
// What replaces an earlier end is told as a withdrawal and a new announcement: a Monitor keeps the earliest
// of one source otherwise. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"

namespace holdfast::inline v1::internal {

// Times that are further away are not believed.
inline constexpr Duration kFarthestEnd = std::chrono::hours(24 * 365);

// When that is on the steady clock; nothing for a time that has passed or is too far away. `service_now` is
// the service's own wall clock, where it has told it: the earlier one counts, as this machine's clock may be
// wrong.
std::optional<SteadyTime> believed(std::optional<WallTime> time, const Clock& clock,
                                   std::optional<WallTime> service_now = {});

// A machine that lives that long after its end was due lives on.
inline constexpr Duration kOutlived = std::chrono::seconds(60);

struct ListedEnd {
  std::string event = {};               // what the service calls it; one of all that are listed may have none
  std::optional<SteadyTime> when = {};  // absent: no time is believed
  bool hibernates = false;
  std::string text = {};  // for people
};

class AnnouncedEnd {
 public:
  // `name`: the source's. `unknown`: how long after the first sight the end is where no time is believed.
  AnnouncedEnd(Clock& clock, std::string_view name, Duration unknown);

  // All that the service lists now, at least one. Adds notices when that is new: the first of it, an earlier
  // end, one of another kind, or one that replaces what is gone or outlived.
  void coming(const std::vector<ListedEnd>& listed, std::vector<Notice>& news);
  // The service lists nothing. Adds a notice when it did before.
  void nothing(std::string text, std::vector<Notice>& news);
  bool told() const { return told_ || lost_withdrawal(); }
  // What was told did not arrive (no memory): the next call tells it again.
  void tell_again() { arrived_ = false; }

 private:
  struct End {
    SteadyTime earliest;
    bool hibernates = false;
    const ListedEnd* listed = nullptr;  // during coming()
  };
  struct Told {
    SteadyTime deadline;
    bool hibernates = false;
    bool replaces = false;  // an earlier one
  };

  void look(const ListedEnd& listed, SteadyTime now);
  const End* earliest(SteadyTime now) const;
  bool lost_withdrawal() const { return withdrawn_ && !arrived_; }

  Clock& clock_;
  std::string name_;
  Duration unknown_;
  std::map<std::string, End> ends_;  // of the events that are listed
  std::optional<Told> told_;
  bool withdrawn_ = false;  // that was the last thing told
  bool arrived_ = true;
};

}  // namespace holdfast::inline v1::internal
