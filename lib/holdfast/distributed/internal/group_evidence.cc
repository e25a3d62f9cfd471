#include "holdfast/distributed/internal/group_evidence.h"

#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/store/stall_evidence.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kForEvidence = std::chrono::milliseconds(900);

}  // namespace

void GroupEvidence::follow(std::function<std::string()> votes) {
  const MutexLock lock(mutex_);
  votes_ = std::move(votes);
}

void GroupEvidence::keep(const std::string& why) noexcept {
  try {
    const BlockSignals block;
    Stall stall{.by = "NCCL's watch", .why = why, .processes = {getpid()}};
    if (const auto pulse = pulse_.lock()) stall.details = pulse->account();
    {
      const MutexLock lock(mutex_);
      if (votes_) stall.details += votes_();
    }
    find_run(stall);
    keep_stall_evidence(
        stall, [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }, kForEvidence);
  } catch (const std::exception& error) {
    log_warning("evidence of the stall is lost: {}", what_of(error));
  }
}

}}  // namespace holdfast::v0_2
