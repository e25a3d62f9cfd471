// Collects one ballot of each voter and returns the largest of each number, as an all-reduce MAX does. The
// run's store keeps one for the votes of its ranks.
//
//   box.join(voter)            all voters, once
//   box.cast(voter, ballot)    the result, when the last of them has cast; then the next round begins
//   box.lose(voter)            a voter's connection ended: no later round can complete
//
// Errors: std::runtime_error for a voter that has not joined, or casts twice in a round. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "holdfast/ranks/rank_channel.h"

namespace holdfast { inline namespace v0_2 {

class BallotBox {
 public:
  using Voter = std::uint64_t;
  explicit BallotBox(std::size_t voters) : voters_(voters) {}

  // True if all voters are there now.
  bool join(Voter voter);
  std::optional<Ballot> cast(Voter voter, const Ballot& ballot);
  // True if it was one of the voters.
  bool lose(Voter voter);
  bool broken() const { return broken_; }
  std::size_t voters() const { return voters_; }
  std::vector<Voter> members() const;

 private:
  std::size_t voters_;
  std::size_t count_ = 0;  // ballots of this round
  std::uint64_t round_ = 0;
  bool broken_ = false;
  Ballot largest_ = {};
  std::unordered_map<Voter, std::uint64_t> members_;  // the next round that each may vote in
};

}}  // namespace holdfast::v0_2
