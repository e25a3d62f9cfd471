#include "holdfast/checkpoint/receipt.h"

#include <bit>

#include "holdfast/base/bits.h"
#include "holdfast/base/log.h"

namespace holdfast::inline v1 {

Receipt::Receipt(const std::map<std::int64_t, double>& recorded, std::int64_t resumed_at, bool promised)
    : promised_(promised) {
  for (auto it = recorded.upper_bound(resumed_at); it != recorded.end(); ++it) {
    if (expected_.size() == kMostSteps) break;
    expected_.emplace_back(*it);
  }
  if (!expected_.empty()) outcome_ = Outcome::pending;
}

void Receipt::compare_next(std::int64_t step, double loss) {
  while (next_ < expected_.size() && expected_[next_].first < step) ++next_;
  if (next_ < expected_.size() && expected_[next_].first == step) {
    const double before = expected_[next_].second;
    if (std::bit_cast<std::uint64_t>(before) != std::bit_cast<std::uint64_t>(loss)) {
      outcome_ = Outcome::differs;
      const std::string was = shortest_decimal(before) + " (" + bits_hex(before) + ")";
      const std::string is = shortest_decimal(loss) + " (" + bits_hex(loss) + ")";
      if (promised_) {
        log_warning(
            "resume differs: the loss of step {} was {} before the interruption and is {} now; look for "
            "state "
            "outside the checkpoint or for non-deterministic operations",
            step, was, is);
      } else {
        log_info("resume is not bit-identical, as announced: the loss of step {} was {} and is {} now", step,
                 was, is);
      }
      return;
    }
    if (last_ < 0) first_ = step;
    last_ = step;
    ++next_;
  }
  if (next_ == expected_.size()) say_verified();
}

void Receipt::close() {
  if (outcome_ == Outcome::pending) say_verified();
}

void Receipt::say_verified() {
  if (last_ < 0) {
    outcome_ = Outcome::nothing_to_compare;
    return;
  }
  outcome_ = Outcome::verified;
  log_info("resume verified: steps {}..{} bit-identical", first_, last_);
}

}  // namespace holdfast::inline v1
