#include "holdfast/distributed/agreement.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "holdfast/ranks/store_votes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// TCPStore refuses a value of more than 8 MiB.
constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr Duration kAskWhetherGone = 1s;
constexpr const char* kStartAgain = "; the newest checkpoint stands: start all ranks again";

std::string key_of(int rank, const std::string& name) { return "say/" + std::to_string(rank) + "/" + name; }
std::string pieces_of(const std::string& key) { return key + "/pieces"; }
std::string piece_of(const std::string& key, std::size_t number) {
  return key + "/" + std::to_string(number);
}

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

  std::shared_ptr<StoreVotes> votes;
  Connections connections;                 // those of `gloo`
  c10::intrusive_ptr<c10d::Backend> gloo;  // null until it is needed
  const StoreLine line;
  std::shared_ptr<Pulse> pulse;
  std::shared_ptr<RollCall> roll_call;
};

Agreement::Agreement(ProcessGroup& group) : group_(group) {
  if (group.world_size() == 1) return;
  if (group.alone()) throw UsageError("an Agreement of ranks that have parted already");
  parts_ = std::make_unique<Parts>(group.line());
  parts_->pulse = group.pulse();
  parts_->roll_call = group.roll_call();
  parts_->votes = group.votes_apart();
}

// In a forked child the connections belong to the parent, and a shutdown would cut them.
Agreement::~Agreement() {
  if (!parts_) return;
  if (!parts_->process.is_this_one()) leave_to_parent(parts_);
}

// The partners notice it.
void Agreement::leave_behind() noexcept {
  // Later calls must not wait for partners that are gone.
  broken_ = true;
  parts_->connections.shut();
  parts_->votes->end();
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
  with_partners("agreement", [&] { parts_->votes->post(mine); });
}

std::optional<Ballot> Agreement::result(Duration limit) {
  return with_partners("agreement", [&] { return parts_->votes->result(limit); });
}

void Agreement::give_up(const std::string& what, Duration waited) {
  const std::string text = "no answer within " + format_duration(waited);
  // Thrown as a failed collective would throw, so that the guard finds out which rank is lost.
  with_partners(what.c_str(), [&] { C10_THROW_ERROR(DistBackendError, text); });
  // Not reached, because with_partners() has thrown. The compiler cannot know that.
  throw GroupError("ranks are lost (" + what + ": " + text + ")" + kStartAgain);
}

void Agreement::tell(const std::string& name, std::string_view text) {
  parts_->over_store("telling", [&](StoreLine& line) {
    const std::string key = key_of(rank(), name);
    const std::size_t more = text.size() / kPiece;
    for (std::size_t i = 1; i <= more; ++i)
      line.set(piece_of(key, i), std::string(text.substr(i * kPiece, kPiece)));
    if (more > 0) line.set(pieces_of(key), std::to_string(more));
    // Last: whoever finds it finds the others.
    line.set(key, std::string(text.substr(0, kPiece)));
  });
}

std::string Agreement::hear(int from, const std::string& name, Duration limit) {
  const SteadyTime began = Clock::real().now();
  const std::string key = key_of(from, name);
  for (bool first = true;; first = false) {
    const Duration left = limit - (Clock::real().now() - began);
    // Asked before the text is read: a rank that has left has told everything that it had to tell. Most texts
    // arrive at once.
    bool never = false;
    if (!first) {
      never = parts_->over_store("hearing",
                                 [&](StoreLine& line) { return line.peek(gone_key(from)).has_value(); });
    }
    const auto text = parts_->over_store("hearing", [&](StoreLine& line) {
      // The loss of a third rank does not end this wait: rank 0's last commit is worth waiting for.
      const Duration wait = never ? 0s : std::clamp<Duration>(left, 0s, kAskWhetherGone);
      auto heard = line.wait(key, wait, /*loss_is_known=*/true);
      if (!heard || heard->size() < kPiece) return heard;
      const auto more = parse_int(line.get(pieces_of(key), 0s)).value_or(0);
      for (std::size_t i = 1; i <= static_cast<std::size_t>(more); ++i)
        *heard += line.get(piece_of(key, i), 0s);
      return heard;
    });
    if (text) return *text;
    if (never || parts_->pulse->fell_silent(from)) {
      throw GroupError(parts_->roll_call->who() + " (waiting for " + name + " of rank " +
                       std::to_string(from) + ")" + kStartAgain);
    }
    if (left <= 0s) {
      throw GroupError("rank " + std::to_string(from) + " did not send '" + name + "' within " +
                       format_duration(limit) + kStartAgain);
    }
  }
}

void Agreement::forget(const std::string& name) {
  parts_->over_store("forgetting", [&](StoreLine& line) {
    const std::string key = key_of(rank(), name);
    line.erase(key);
    const auto more = line.peek(pieces_of(key));
    if (!more) return;
    line.erase(pieces_of(key));
    for (std::int64_t i = 1; i <= parse_int(*more).value_or(0); ++i) {
      line.erase(piece_of(key, static_cast<std::size_t>(i)));
    }
  });
}

void Agreement::require_all() {
  if (!parts_ || !parts_->pulse->alarm()->rank) return;
  throw GroupError(parts_->roll_call->who() + kStartAgain);
}

bool Agreement::has_left(int rank) {
  return !parts_ || parts_->pulse->fell_silent(rank) || parts_->over_store("leaving", [&](StoreLine& line) {
    return line.peek(gone_key(rank)).has_value();
  });
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
