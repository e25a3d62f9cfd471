// The proof that a resume was exact: compares the losses that earlier attempts recorded after the checkpoint
// with those of the first steps computed again. Logs the result once:
// `resume verified: steps 1235..1240 bit-identical`, or a warning with the first difference and both values.
//
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class Receipt {
 public:
  static constexpr std::size_t kMostSteps = 16;

  enum class Outcome { nothing_to_compare, pending, verified, differs };

  Receipt() = default;
  // `recorded`: losses by step; only steps after `resumed_at` are compared, the first kMostSteps of them.
  // `promised` false (another device, library …): a difference is expected and not a warning.
  Receipt(const std::map<std::int64_t, double>& recorded, std::int64_t resumed_at, bool promised);

  // One comparison; does nothing after the result was logged.
  void compare(std::int64_t step, double loss) {
    if (outcome_ == Outcome::pending) compare_next(step, loss);
  }
  // The run ends: logs the result so far.
  void close();
  Outcome outcome() const { return outcome_; }

 private:
  void compare_next(std::int64_t step, double loss);
  void say_verified();

  std::vector<std::pair<std::int64_t, double>> expected_;
  std::size_t next_ = 0;
  std::int64_t first_ = 0;  // compared so far: first_..last_
  std::int64_t last_ = -1;
  bool promised_ = true;
  Outcome outcome_ = Outcome::nothing_to_compare;
};

}}  // namespace holdfast::v0_2
