#include "holdfast/ranks/rank_group.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/ranks/patience.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

nlohmann::json object_in(const std::string& text, int rank, const char* name) {
  auto value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_object()) {
    throw Error("rank " + std::to_string(rank) + " sent an unreadable text (" + name + ")");
  }
  return value;
}

}  // namespace

SaveHandle RankGroup::begin_save(std::shared_ptr<SaveHandle::Shared> save) {
  open_.push_back(save);
  // The new save replaces older ones whose outcome is open, except a share that is being written.
  std::erase_if(open_, [&](const auto& open) {
    if (open == save || open->taken) return false;
    open->settle(SaveStatus::overtaken, {});
    return true;
  });
  return SaveHandle(std::move(save));
}

void RankGroup::settle(SaveStatus outcome, std::string_view text) {
  for (const auto& save : open_) {
    // A share whose commit the votes have shown is durable, whatever ended the run.
    durable_ >= save->step ? save->settle(SaveStatus::durable, {}) : save->settle(outcome, text);
  }
  open_.clear();
}

void RankGroup::determine_volume(std::vector<bool> sees) {
  sees_ = std::move(sees);
  // Rank 0 sees its own volume; sharing begins with a second one.
  sharing_ = std::count(sees_.begin() + 1, sees_.end(), true) > 0;
}

bool RankGroup::all_see() const {
  return !sees_.empty() && std::find(sees_.begin(), sees_.end(), false) == sees_.end();
}

void RankGroup::begin_sharing(AttemptNumber attempt, Clock& clock) {
  shared_ = std::make_unique<SharedWriter>(guarded_, attempt, clock);
}

std::optional<Duration> RankGroup::left(SteadyTime now) const {
  if (!end_) return std::nullopt;
  return time_until(*end_, now);
}

void RankGroup::part() {
  parting_->parted = true;  // no thread begins a wait from here on
  parting_->mutex.lock();   // waits for those that share it
  parting_->mutex.unlock();
}

void RankGroup::post(const Vote& vote, SteadyTime now) {
  channel_.post(ballot_of(vote, rank(), world_size()));
  posted_ = now;
}

void RankGroup::learn(const Agreed& agreed) {
  // Each vote tells the time left anew, so what was agreed earlier is dropped.
  end_.reset();
  named_end_.reset();
  // Counted from when the ballot was posted: the result arrives later, and time has passed since.
  if (agreed.left) end_ = posted_ + *agreed.left;
  if (agreed.named_left) named_end_ = posted_ + *agreed.named_left;
  durable_ = agreed.durable;
  failing_ = agreed.failing;
  alone_ = alone_ || agreed.alone;
  std::erase_if(open_, [&](const auto& save) {
    // This rank's share writer still holds it, and settles it itself.
    if (save->taken) return false;
    const bool safe = durable_ >= save->step;
    // Rank 0 failed only if it is done with that save: not busy, and at a later step.
    if (!safe && !(failing_ && agreed.busy < 0 && agreed.step > save->step)) return false;
    save->settle(safe ? SaveStatus::durable : SaveStatus::failed,
                 safe ? "" : "rank 0 could not write it: its log says why");
    return true;
  });
}

void RankGroup::tell(const char* name, const nlohmann::json& value) {
  // Texts of exceptions may hold any byte; JSON cannot, so strange ones are replaced.
  channel_.tell(name, value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json RankGroup::hear(int rank, const char* name, Duration limit) {
  return object_in(channel_.hear(rank, name, limit), rank, name);
}

std::optional<nlohmann::json> RankGroup::hear_within(int rank, const char* name, Duration slice) {
  const auto text = v0_2::hear_within(channel_, rank, name, slice);
  return text ? std::optional(object_in(*text, rank, name)) : std::nullopt;
}

// Holds the lock while it waits, but only for one slice (hear_patiently), so part() waits at most that long.
void DetachableChannel::tell(const std::string& name, std::string_view text) {
  const SharedLock lock(parting_->mutex);
  if (parting_->parted) throw Error("the run has ended");
  channel_->tell(name, text);
}

std::string DetachableChannel::hear(int rank, const std::string& name, Duration limit) {
  const SharedLock lock(parting_->mutex);
  if (parting_->parted) throw Error("the run has ended");
  return channel_->hear(rank, name, limit);
}

void DetachableChannel::forget(const std::string& name) {
  const SharedLock lock(parting_->mutex);
  if (!parting_->parted) channel_->forget(name);
}

void DetachableChannel::post(const Ballot& /*mine*/) {
  throw Error("the writer's channel carries texts only");
}

std::optional<Ballot> DetachableChannel::result(Duration /*limit*/) {
  throw Error("the writer's channel carries texts only");
}

void DetachableChannel::give_up(const std::string& what, Duration /*waited*/) { throw Error(what); }

void DetachableChannel::broadcast(std::span<std::byte> /*bytes*/) {
  throw Error("the writer's channel carries texts only");
}

std::unique_ptr<RankGroup> ranks_of(RankChannel* channel, SnapshotSource& source) {
  if (channel == nullptr || channel->world_size() == 1) return nullptr;
  return std::make_unique<RankGroup>(*channel, source);
}

std::string own_text(std::int64_t step) { return "own/" + std::to_string(step); }

std::string boundary_text(std::int64_t step, int evaluation) {
  return "boundary/" + std::to_string(step) + '/' + std::to_string(evaluation);
}

}}}  // namespace holdfast::v0_2::internal
