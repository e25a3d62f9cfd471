// Paths that a metadata service answered with 403. The source does not ask such a path for five minutes;
// later it tries again, because a permission may come.
//
// Errors: bad_alloc. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

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

 private:
  const Clock& clock_;
  std::map<std::string, SteadyTime, std::less<>> until_;
};

}}}  // namespace holdfast::v0_2::internal
