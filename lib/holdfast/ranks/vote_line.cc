#include "holdfast/ranks/vote_line.h"

#include <cstring>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

VoteLine::VoteLine(std::shared_ptr<StoreConnection> connection, std::string name, int world_size)
    : connection_(std::move(connection)), name_(std::move(name)), world_size_(world_size) {}

void VoteLine::join(Duration limit) {
  // Not call(): its limit is for answers that come at once, and this one comes when all ranks have joined.
  connection_->begin(Kind::join, {name_, std::to_string(world_size_)});
  if (!connection_->finish(limit)) throw StoreClosed("not all ranks came to vote");
}

void VoteLine::post(const Ballot& mine) {
  // One ballot at a time, because answers carry no number.
  if (pending_) throw UsageError("a ballot was posted while another is pending");
  connection_->begin(Kind::vote,
                     {name_, std::string(reinterpret_cast<const char*>(mine.data()), sizeof mine)});
  pending_ = true;
}

std::optional<Ballot> VoteLine::result(Duration limit) {
  if (!pending_) throw UsageError("no ballot is pending");
  const auto words = connection_->finish(limit);
  if (!words) return std::nullopt;
  pending_ = false;
  Ballot largest;
  if (words->size() != 1 || words->front().size() != sizeof largest) {
    throw StoreClosed("the store sent a malformed answer to a vote");
  }
  std::memcpy(largest.data(), words->front().data(), sizeof largest);
  return largest;
}

}}  // namespace holdfast::v0_2
