// How well a source sees its service, and how long it leaves it alone: polls, failures, blind time; after
// failures 1, 2, 4, then 8 s. Says that it has become blind, and that it sees again; people who know it
// already are not told more often than every ten minutes.
//
// Threads: figures() by any; the rest by the source's own.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1::internal {

class Sight {
 public:
  // `service` as in "EC2's metadata service".
  Sight(Clock& clock, std::string service);

  void saw();
  void missed(std::string_view why);
  bool failing() const;  // the last look saw nothing
  // Until the next poll.
  Duration interval(Duration usual) const;
  // Blind time includes that since the last look while it lasts.
  SourceFigures figures() const;

 private:
  Clock& clock_;
  const std::string service_;
  mutable std::mutex mutex_;
  SourceFigures figures_;
  SteadyTime last_sight_;
  int streak_ = 0;  // failures since
  bool said_ = false;
  std::optional<SteadyTime> last_said_;
};

}  // namespace holdfast::inline v1::internal
