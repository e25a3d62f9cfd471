#include "holdfast/checkpoint/internal/crew.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1::internal {

SaveHandle Crew::begin_save(std::shared_ptr<SaveHandle::Shared> save) {
  open_.push_back(save);
  std::erase_if(open_, [&](const auto& open) {
    if (open == save || open->in_hand) return false;
    open->settle(SaveStatus::overtaken, {});
    return true;
  });
  return SaveHandle(std::move(save));
}

void Crew::settle(SaveStatus outcome, std::string_view text) {
  for (const auto& save : open_) {
    durable >= save->step ? save->settle(SaveStatus::durable, {}) : save->settle(outcome, text);
  }
  open_.clear();
}

std::optional<Duration> Crew::left(SteadyTime now) const {
  if (!end) return std::nullopt;
  return std::max(Duration(*end - now), Duration::zero());
}

bool Crew::end_has_moved(Duration by) const {
  if (end.has_value() != patient_until.has_value()) return true;
  return end && std::max(*end - *patient_until, *patient_until - *end) > by;
}

void Crew::part() {
  parting->parted = true;  // nobody begins to wait from here on
  const std::lock_guard lock(parting->mutex);
}

void Crew::learn(const Agreed& agreed) {
  end.reset();
  if (agreed.left) end = posted + *agreed.left;
  durable = agreed.durable;
  failing = agreed.failing;
  alone = alone || agreed.alone;
  std::erase_if(open_, [&](const auto& save) {
    if (save->in_hand) return false;
    const bool safe = durable >= save->step;
    if (!safe && !(failing && agreed.busy < 0 && agreed.step > save->step)) return false;
    save->settle(safe ? SaveStatus::durable : SaveStatus::failed,
                 safe ? "" : "rank 0 could not write it: its log says why");
    return true;
  });
}

void Crew::tell(const char* name, const nlohmann::json& value) {
  companions.tell(name, value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json Crew::hear(int rank, const char* name, Duration limit) {
  auto value = nlohmann::json::parse(companions.hear(rank, name, limit), nullptr, false);
  if (!value.is_object()) {
    throw Error("rank " + std::to_string(rank) + " told something unreadable (" + name + ")");
  }
  return value;
}

// The lock is held while it waits, in slices (hear_patiently): part() waits for one of them.
void PartableCompanions::tell(const std::string& name, std::string_view text) {
  const std::shared_lock lock(parting_->mutex);
  if (parting_->parted) throw Error("the run has ended");
  companions_.tell(name, text);
}

std::string PartableCompanions::hear(int rank, const std::string& name, Duration limit) {
  const std::shared_lock lock(parting_->mutex);
  if (parting_->parted) throw Error("the run has ended");
  return companions_.hear(rank, name, limit);
}

void PartableCompanions::forget(const std::string& name) {
  const std::shared_lock lock(parting_->mutex);
  if (!parting_->parted) companions_.forget(name);
}

void PartableCompanions::post(const Ballot& /*mine*/) { throw Error("only texts go this way"); }

std::optional<Ballot> PartableCompanions::result(Duration /*limit*/) {
  throw Error("only texts go this way");
}

void PartableCompanions::give_up(const std::string& what, Duration /*waited*/) { throw Error(what); }

void PartableCompanions::broadcast(std::span<std::byte> /*bytes*/) { throw Error("only texts go this way"); }

std::unique_ptr<Crew> crew_of(Companions* companions, SnapshotSource& source) {
  if (companions == nullptr || companions->world_size() == 1) return nullptr;
  return std::make_unique<Crew>(*companions, source);
}

std::string own_text(std::int64_t step) { return "own/" + std::to_string(step); }

}  // namespace holdfast::inline v1::internal
