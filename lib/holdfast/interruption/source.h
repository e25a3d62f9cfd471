// The plug-in interface of interruption sources. A Monitor owns its sources and gives each a thread of its
// own, so that one that hangs delays no other and never the training thread.
//
// What a source cannot do at the moment (no network, 503) is no notice and no error: it logs what people
// should know, once, and tries again at its next poll. An exception from poll() switches the source off,
// loudly. Threads: poll() is called by one thread at a time, first by the one that starts the Monitor (unless
// may_block()), then by the source's own. cancel() may be called from another thread during a poll().
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"

namespace holdfast::inline v1 {

// How well a source could see. Blind: its service did not answer, or not in a way that could be understood,
// so that a notice would have been missed.
struct SourceFigures {
  std::int64_t polls = 0;
  std::int64_t failures = 0;  // polls that could not see
  Duration blind{};           // time between the last poll that could see and the next that could, summed up
};

class Source {
 public:
  virtual ~Source() = default;

  virtual std::string_view name() const = 0;
  // News since the last poll. The same news twice does no harm, but is shown to people twice.
  virtual std::vector<Notice> poll() = 0;
  // Time between two polls.
  virtual Duration interval() const = 0;
  // A descriptor that becomes readable when there is news, so that it is polled at once; -1: none. poll()
  // makes it unreadable again.
  virtual int wake_descriptor() const { return -1; }
  // True when poll() may take more than a few milliseconds (network).
  virtual bool may_block() const { return false; }
  // The Monitor stops: a poll() in progress returns soon.
  virtual void cancel() {}
  // Any thread.
  virtual SourceFigures figures() const { return {}; }
};

}  // namespace holdfast::inline v1
