#include "holdfast/ranks/ballot_box.h"

#include <stdexcept>

namespace holdfast { inline namespace v0_2 {

bool BallotBox::join(Voter voter) {
  // Who breaks the protocol gets an exception, by which the server closes the connection.
  if (members_.size() >= voters_) throw std::runtime_error("more voters than ranks");
  if (!members_.emplace(voter, round_).second) throw std::runtime_error("a voter joins twice");
  return members_.size() == voters_;
}

std::optional<Ballot> BallotBox::cast(Voter voter, const Ballot& ballot) {
  const auto member = members_.find(voter);
  if (member == members_.end()) throw std::runtime_error("a voter that has not joined");
  // One ballot a round: a second one would count for another round than the rank means.
  if (member->second != round_) throw std::runtime_error("a voter votes twice");
  ++member->second;
  // The first ballot of a round replaces the last round's result.
  largest_ = count_ == 0 ? ballot : larger_of(largest_, ballot);
  if (++count_ < voters_) return std::nullopt;
  count_ = 0;
  ++round_;
  return largest_;
}

bool BallotBox::lose(Voter voter) {
  if (members_.erase(voter) == 0) return false;
  // A box without all voters never gives a result again; those that wait must hear it.
  broken_ = true;
  return true;
}

std::vector<BallotBox::Voter> BallotBox::members() const {
  std::vector<Voter> all;
  all.reserve(members_.size());
  for (const auto& [voter, next] : members_) all.push_back(voter);
  return all;
}

}}  // namespace holdfast::v0_2
