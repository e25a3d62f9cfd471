#include "holdfast/ranks/rank_group.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v1 { namespace internal {

SaveHandle RankGroup::begin_save(std::shared_ptr<SaveHandle::Shared> save) {
  open_.push_back(save);
  // The new save replaces older ones whose outcome is open, except a share that is being written.
  std::erase_if(open_, [&](const auto& open) {
    if (open == save || open->in_hand) return false;
    open->settle(SaveStatus::overtaken, {});
    return true;
  });
  return SaveHandle(std::move(save));
}

void RankGroup::settle(SaveStatus outcome, std::string_view text) {
  for (const auto& save : open_) {
    durable >= save->step ? save->settle(SaveStatus::durable, {}) : save->settle(outcome, text);
  }
  open_.clear();
}

bool RankGroup::all_see() const {
  return !sees.empty() && std::find(sees.begin(), sees.end(), false) == sees.end();
}

std::optional<Duration> RankGroup::left(SteadyTime now) const {
  if (!end) return std::nullopt;
  return std::max(Duration(*end - now), Duration::zero());
}

void RankGroup::part() {
  parting->parted = true;  // no thread begins a wait from here on
  parting->mutex.lock();   // waits for those that share it
  parting->mutex.unlock();
}

void RankGroup::learn(const Agreed& agreed) {
  end.reset();
  if (agreed.left) end = posted + *agreed.left;
  durable = agreed.durable;
  failing = agreed.failing;
  alone = alone || agreed.alone;
  std::erase_if(open_, [&](const auto& save) {
    if (save->in_hand) return false;
    const bool safe = durable >= save->step;
    // Rank 0 failed only if it is done with that save: not busy, and at a later step.
    if (!safe && !(failing && agreed.busy < 0 && agreed.step > save->step)) return false;
    save->settle(safe ? SaveStatus::durable : SaveStatus::failed,
                 safe ? "" : "rank 0 could not write it: its log says why");
    return true;
  });
}

void RankGroup::tell(const char* name, const nlohmann::json& value) {
  channel.tell(name, value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json RankGroup::hear(int rank, const char* name, Duration limit) {
  auto value = nlohmann::json::parse(channel.hear(rank, name, limit), nullptr, false);
  if (!value.is_object()) {
    throw Error("rank " + std::to_string(rank) + " told something unreadable (" + name + ")");
  }
  return value;
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

void DetachableChannel::post(const Ballot& /*mine*/) { throw Error("only texts go this way"); }

std::optional<Ballot> DetachableChannel::result(Duration /*limit*/) { throw Error("only texts go this way"); }

void DetachableChannel::give_up(const std::string& what, Duration /*waited*/) { throw Error(what); }

void DetachableChannel::broadcast(std::span<std::byte> /*bytes*/) { throw Error("only texts go this way"); }

std::unique_ptr<RankGroup> ranks_of(RankChannel* channel, SnapshotSource& source) {
  if (channel == nullptr || channel->world_size() == 1) return nullptr;
  return std::make_unique<RankGroup>(*channel, source);
}

std::string own_text(std::int64_t step) { return "own/" + std::to_string(step); }

std::string boundary_text(std::int64_t step, int evaluation) {
  return "boundary/" + std::to_string(step) + '/' + std::to_string(evaluation);
}

}}}  // namespace holdfast::v1::internal
