#include "holdfast/checkpoint/receipt.h"

#include <array>
#include <bit>
#include <span>
#include <string_view>

#include "holdfast/base/bits.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// "0.5 (3fe0000000000000)", without an allocation: no comparison ends a training.
class Value {
 public:
  explicit Value(double value) {
    const std::span<char> all(buffer_);
    size_ = write_shortest_decimal(value, all);
    const auto add = [&](std::string_view text) { size_ += text.copy(all.data() + size_, text.size()); };
    add(" (");
    write_bits_hex(value, all.subspan(size_));
    size_ += 16;
    add(")");
  }
  std::string_view text() const { return {buffer_.data(), size_}; }

 private:
  std::array<char, 64> buffer_{};
  std::size_t size_ = 0;
};

}  // namespace

Receipt::Receipt(const std::map<std::int64_t, double>& recorded, std::int64_t resumed_at, bool promised)
    : promised_(promised) {
  // No step computes the loss of the resumed step again.
  for (auto it = recorded.upper_bound(resumed_at); it != recorded.end(); ++it) {
    if (expected_.size() == kMostSteps) break;
    expected_.emplace_back(*it);
  }
  if (!expected_.empty()) outcome_ = Outcome::pending;
}

void Receipt::compare_next(std::int64_t step, double loss) {
  // A step whose loss was not reported is passed over.
  while (next_ < expected_.size() && expected_[next_].first < step) ++next_;
  if (next_ < expected_.size() && expected_[next_].first == step) {
    const double before = expected_[next_].second;
    // Bits, because the promise is a bit-identical resume.
    if (std::bit_cast<std::uint64_t>(before) != std::bit_cast<std::uint64_t>(loss)) {
      outcome_ = Outcome::differs;
      const Value was(before);
      const Value is(loss);
      if (promised_) {
        log_warning(
            "resume differs: the loss of step {} was {} before the interruption and is {} now; look for "
            "state "
            "outside the checkpoint or for non-deterministic operations",
            step, was.text(), is.text());
      } else {
        log_info("resume is not bit-identical, as announced: the loss of step {} was {} and is {} now", step,
                 was.text(), is.text());
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

}}  // namespace holdfast::v0_2
