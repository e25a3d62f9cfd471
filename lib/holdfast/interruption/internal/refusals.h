// Paths that a metadata service answered with 403. The source does not ask such a path for five minutes;
// later it tries again, because a permission may come. A path with an answer that is too long is asked again,
// and logged once: what it announces is not heard.
//
// Errors: bad_alloc. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr int kRefused = 403;
inline constexpr Duration kAfterRefusal = std::chrono::minutes(5);

class Refusals {
 public:
  explicit Refusals(const Clock& clock) : clock_(clock) {}

  void refused(std::string_view path) {
    until_.insert_or_assign(std::string(path),
                            clock_.now() + std::chrono::duration_cast<SteadyTime::duration>(kAfterRefusal));
  }
  bool rests(std::string_view path) const {
    const auto found = until_.find(path);
    return found != until_.end() && clock_.now() < found->second;
  }
  void too_long(std::string_view path, std::string_view why) {
    if (!too_long_.emplace(path).second) return;
    log_warning("blind for {} of the metadata service: {}; what it announces is not heard", path, why);
  }

 private:
  const Clock& clock_;
  std::map<std::string, SteadyTime, std::less<>> until_;
  std::set<std::string, std::less<>> too_long_;  // was logged
};

}}}  // namespace holdfast::v0_2::internal
