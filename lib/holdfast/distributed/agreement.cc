#include "holdfast/distributed/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "holdfast/base/log.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/connections.h"
#include "holdfast/distributed/internal/meeting.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/roll_call.h"
#include "holdfast/ranks/store_line.h"
#include "holdfast/ranks/vote_line.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr auto kBallotSize = static_cast<std::int64_t>(std::tuple_size_v<Ballot>);
constexpr Duration kAlarmLook = 100ms;  // between two checks of the signs of life
constexpr Duration kAskWhetherGone = 1s;
constexpr const char* kStartAgain = "; the newest checkpoint stands: start all ranks again";

// A wait of c10d without a limit is one of zero milliseconds, and one that ends at its limit throws.
bool completes_within(c10d::Work& work, Duration limit) {
  if (work.isCompleted()) return true;
  try {
    work.wait(std::max(std::chrono::ceil<std::chrono::milliseconds>(limit), 1ms));
  } catch (const std::exception&) {  // the limit, or a failure, which the next wait() throws again
  }
  return work.isCompleted();
}

// The largest of each number over all ballots: what an all-reduce returns, for half of its messages.
Ballot largest_of(const at::Tensor& ballots) {
  Ballot largest;
  const auto* ballot = ballots.const_data_ptr<std::int64_t>();
  const auto* const end = ballot + ballots.numel();
  std::copy_n(ballot, largest.size(), largest.begin());
  while ((ballot += kBallotSize) != end) {
    for (std::size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], ballot[i]);
  }
  return largest;
}

std::string key_of(int rank, const std::string& name) { return "say/" + std::to_string(rank) + "/" + name; }

}  // namespace

struct Agreement::Parts {
  explicit Parts(const StoreLine& meeting) : line(meeting) {}

  const OwnerProcess process = {};

  // The writer's thread calls hear() too, so each call has a line of its own over the shared connection.
  template <class Work>
  auto over_store(const char* what, const Work& work) {
    try {
      // A copy: a line remembers that it is dead, and each call has to find that out anew.
      StoreLine own = line;
      return work(own);
    } catch (const SilentStore& silent) {
      throw GroupError(roll_call->who() + " (" + what + ": " + silent.what() + " from the store)" +
                       kStartAgain);
    }
  }

  std::shared_ptr<VoteLine> votes;         // null: the store is not Holdfast's, and `gloo` carries the votes
  Connections connections;                 // those of `gloo`
  c10::intrusive_ptr<c10d::Backend> gloo;  // null until it is needed
  at::Tensor ballot = at::empty({kBallotSize}, at::kLong);
  at::Tensor ballots;                   // of all ranks, a row each
  c10::intrusive_ptr<c10d::Work> vote;  // of `gloo`; null: no ballot is pending
  const StoreLine line;
  std::shared_ptr<Pulse> pulse;
  std::shared_ptr<RollCall> roll_call;

  // The result of `votes`.
  std::optional<Ballot> counted(Duration limit) const {
    const SteadyTime end = Clock::real().now() + limit;
    while (true) {
      // In short waits, so that a rank that fell silent ends this one soon.
      const Duration left = std::max<Duration>(end - Clock::real().now(), 0ms);
      if (auto result = votes->result(std::min(left, kAlarmLook))) return result;
      // The store does not see a rank that is stopped or out of reach; the signs of life do.
      if (pulse->alarm()->rank) throw StoreClosed("no sign of life");
      if (left == 0ms) return std::nullopt;
    }
  }
};

Agreement::Agreement(ProcessGroup& group) : group_(group) {
  if (group.world_size() == 1) return;
  if (group.alone()) throw UsageError("an Agreement of ranks that have parted already");
  parts_ = std::make_unique<Parts>(group.line());
  parts_->pulse = group.pulse();
  parts_->roll_call = group.roll_call();
  parts_->votes = group.votes_apart();
  if (parts_->votes) return;
  // A separate group: its collectives must not mix with the gradients'.
  parts_->gloo = group.connect_apart("agreement", parts_->connections);
  parts_->ballots = at::empty({group.world_size() * kBallotSize}, at::kLong);
}

// In a forked child the connections belong to the parent, and a shutdown would cut them.
Agreement::~Agreement() {
  if (!parts_) return;
  if (!parts_->process.is_this_one()) {
    leave_to_parent(parts_);
  } else if (parts_->vote && !parts_->vote->isCompleted()) {
    // Nobody reads that result. Gloo's destructor would wait for ranks that may never vote.
    parts_->connections.shut();
  }
}

// The partners notice the shutdown. Gloo's destructor waits for the vote that it ends, so a detached thread
// runs it.
void Agreement::leave_behind() noexcept {
  // Later calls must not wait for partners that are gone.
  broken_ = true;
  try {
    parts_->connections.shut();
    if (parts_->votes) parts_->votes->shut();
    if (!parts_->gloo) return;
    std::thread([vote = std::move(parts_->vote), gloo = std::move(parts_->gloo)]() mutable {
      gloo.reset();
    }).detach();
  } catch (const std::exception&) {  // no thread: Gloo was destroyed, and waited for, here
  }
}

int Agreement::rank() const noexcept { return group_.rank(); }

int Agreement::world_size() const noexcept { return group_.world_size(); }

Duration Agreement::timeout() const noexcept { return group_.timeout(); }

// A failed exchange is final: the partners may be in different states, and the connections are gone.
template <class Work>
auto Agreement::with_partners(const char* what, const Work& work) {
  if (broken_) throw GroupError("a rank was lost before (" + std::string(what) + ")" + kStartAgain);
  try {
    return group_.guard(what, work);
  } catch (const Error&) {
    leave_behind();
    throw;
  } catch (const std::exception& error) {
    leave_behind();
    if (!group_.alone()) throw;
    // Another guard has named the lost rank and dropped the connections of this exchange.
    throw GroupError("a rank was lost (" + std::string(what) + ": " + brief(error) + ")" + kStartAgain);
  }
}

void Agreement::post(const Ballot& mine) {
  with_partners("agreement", [&] {
    if (parts_->votes) return parts_->votes->post(mine);
    if (parts_->vote) throw UsageError("a ballot was posted while another is pending");
    std::copy(mine.begin(), mine.end(), parts_->ballot.mutable_data_ptr<std::int64_t>());
    parts_->vote = parts_->gloo->_allgather_base(parts_->ballots, parts_->ballot);
  });
}

std::optional<Ballot> Agreement::result(Duration limit) {
  return with_partners("agreement", [&]() -> std::optional<Ballot> {
    if (parts_->votes) return parts_->counted(limit);
    if (!parts_->vote) throw UsageError("no ballot is pending");
    if (!completes_within(*parts_->vote, limit)) {
      // Gloo does not see a rank that is stopped or out of reach; the signs of life do.
      if (!parts_->pulse->lost().empty()) C10_THROW_ERROR(DistBackendError, "no sign of life");
      return std::nullopt;
    }
    parts_->vote->wait();  // throws if it failed
    parts_->vote.reset();
    return largest_of(parts_->ballots);
  });
}

void Agreement::give_up(const std::string& what, Duration waited) {
  const std::string text = "no answer within " + format_duration(waited);
  // Thrown as a failed collective would throw, so that the guard finds out which rank is lost.
  with_partners(what.c_str(), [&] { C10_THROW_ERROR(DistBackendError, text); });
  // Not reached, because with_partners() has thrown. The compiler cannot know that.
  throw GroupError("ranks are lost (" + what + ": " + text + ")" + kStartAgain);
}

void Agreement::tell(const std::string& name, std::string_view text) {
  parts_->over_store("telling", [&](StoreLine& line) { line.set(key_of(rank(), name), std::string(text)); });
}

std::string Agreement::hear(int from, const std::string& name, Duration limit) {
  const SteadyTime began = Clock::real().now();
  const std::string key = key_of(from, name);
  // More ranks ask less often; the store answers at once when the text comes.
  const Duration piece = 50ms + 250us * world_size();
  SteadyTime ask_at = began + piece;  // when to ask whether the rank has left; most texts arrive at once
  while (true) {
    // Asked before the text is read: a rank that has left has told everything that it had to tell.
    bool never = false;
    if (Clock::real().now() >= ask_at) {
      ask_at = Clock::real().now() + kAskWhetherGone;
      never = parts_->over_store("hearing", [&](StoreLine& line) {
        return line.missing({"gone/" + std::to_string(from)}, 0s).empty();
      });
    }
    const auto text = parts_->over_store("hearing", [&](StoreLine& line) -> std::optional<std::string> {
      // The loss of a third rank does not end this wait: rank 0's last commit is worth waiting for.
      if (!line.missing({key}, piece, /*loss_is_known=*/true).empty()) return std::nullopt;
      return line.get_all({key}).at(0);
    });
    if (text) return *text;
    if (never || parts_->pulse->fell_silent(from)) {
      throw GroupError(parts_->roll_call->who() + " (waiting for " + name + " of rank " +
                       std::to_string(from) + ")" + kStartAgain);
    }
    if (Clock::real().now() - began >= limit) {
      throw GroupError("rank " + std::to_string(from) + " did not send '" + name + "' within " +
                       format_duration(limit) + kStartAgain);
    }
  }
}

void Agreement::forget(const std::string& name) {
  parts_->over_store("forgetting", [&](StoreLine& line) { line.erase(key_of(rank(), name)); });
}

void Agreement::expect_silence(Duration longest) noexcept {
  if (parts_) parts_->pulse->expect_silence(longest);
}

void Agreement::call(bool so) noexcept {
  if (parts_) parts_->pulse->call(so);
}

bool Agreement::called() const noexcept { return parts_ && parts_->pulse->called(); }

std::weak_ptr<const void> Agreement::saves_in_flight() const { return group_.saves(); }

void Agreement::broadcast(std::span<std::byte> bytes) {
  with_partners("sending the checkpoint", [&] {
    // Connected only when a checkpoint is sent, because Gloo connects every two ranks.
    if (!parts_->gloo) parts_->gloo = group_.connect_apart("agreement", parts_->connections);
    std::vector<at::Tensor> tensors = {
        at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = 0;
    parts_->gloo->broadcast(tensors, options)->wait();
  });
}

}}  // namespace holdfast::v0_2
