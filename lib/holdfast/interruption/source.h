// The plug-in interface of interruption sources. A Monitor owns its sources and gives each its own thread, so
// a source that hangs delays neither the others nor the training thread.
//
// A source that cannot see at the moment (no network, 503) returns no notice and no error. It logs that once,
// and tries again at its next poll. An exception from poll() switches the source off and is logged.
//
// Errors: see above. Threads: poll() is called by one thread at a time: first by the one that starts the
// Monitor (unless may_block()), then by the source's own. cancel() may be called from another thread during a
// poll().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/interruption/notice.h"

namespace holdfast { inline namespace v0_2 {

// How well a source can see. Blind: its service did not answer, or not understandably, so a notice could have
// been missed.
struct SourceFigures {
  std::int64_t polls = 0;
  std::int64_t failures = 0;  // polls that could not see
  Duration blind{};           // total time from polls that could see to the next ones that could
  Duration blind_now{};       // of that, since the last poll that could see; zero if the last one could
  bool refused = false;       // the service refuses repeatedly
  std::string why = {};       // why it does not see; for people
};

// A source that is blind for this long causes one warning.
inline constexpr Duration kBlindAfter = std::chrono::minutes(1);

class HOLDFAST_EXPORT Source {
 public:
  virtual ~Source() = default;

  virtual std::string_view name() const = 0;
  // News since the last poll. Repeated news is harmless, but people see it twice.
  virtual std::vector<Notice> poll() = 0;
  // Time between two polls.
  virtual Duration interval() const = 0;
  // A descriptor that becomes readable when there is news, so that the Monitor polls at once; -1: none.
  // poll() makes it unreadable again.
  virtual int wake_descriptor() const { return -1; }
  // True if poll() may take more than a few milliseconds (network).
  virtual bool may_block() const { return false; }
  // The Monitor stops: a running poll() must return soon.
  virtual void cancel() {}
  // May be called from any thread.
  virtual SourceFigures figures() const { return {}; }
};

}}  // namespace holdfast::v0_2
