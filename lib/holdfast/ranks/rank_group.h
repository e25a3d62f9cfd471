// What a Checkpointer keeps about the other ranks of its run: the channel to them, what the votes agreed on,
// and the saves that all ranks know.
//
// Errors: as RankChannel. Threads: the training thread; patience(), limit_lifted(), guarded() and
// before_parting() any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/shared_write.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// After the loss of a rank, or at this rank's end, the shares of living ranks may still complete a checkpoint
// for this long.
inline constexpr Duration kPartingGrace = std::chrono::seconds(10);

// A writer's thread holds `mutex` (shared) while it uses the channel or the source.
struct Parting {
  SharedMutex mutex;
  std::atomic<bool> parted{false};
};

// Passes texts on, until this rank has parted.
class DetachableChannel final : public RankChannel {
 public:
  DetachableChannel(RankChannel& channel, std::shared_ptr<Parting> parting)
      : rank_(channel.rank()),
        world_size_(channel.world_size()),
        timeout_(channel.timeout()),
        parting_(std::move(parting)),
        channel_(&channel) {}
  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_size_; }
  Duration timeout() const noexcept override { return timeout_; }
  void post(const Ballot& mine) override;
  std::optional<Ballot> result(Duration limit) override;
  [[noreturn]] void give_up(const std::string& what, Duration waited) override;
  void tell(const std::string& name, std::string_view text) override;
  std::string hear(int rank, const std::string& name, Duration limit) override;
  void forget(const std::string& name) override;
  void broadcast(std::span<std::byte> bytes) override;

 private:
  const int rank_;
  const int world_size_;
  const Duration timeout_;
  const std::shared_ptr<Parting> parting_;
  RankChannel* const channel_ HOLDFAST_PT_GUARDED_BY(parting_->mutex);
};

// What the votes have agreed on changes in learn() alone, so that all ranks hold the same.
class RankGroup {
 public:
  RankGroup(RankChannel& channel, SnapshotSource& own)
      : channel_(channel), guarded_(channel, parting_), ranked_(own, channel.rank(), channel.world_size()) {
    channel_.take();
  }

  bool leads() const { return channel_.rank() == 0; }
  int rank() const { return channel_.rank(); }
  int world_size() const { return channel_.world_size(); }
  RankChannel& channel() { return channel_; }
  // For the writer's thread, which may outlive the channel if a disk hangs.
  DetachableChannel& guarded() { return guarded_; }
  // The source of this rank's saves. The file has room for the tensors of all ranks.
  SnapshotSource& source() { return ranked_; }

  // Posts this rank's ballot. An end that the result names counts from `now`.
  void post(const Vote& vote, SteadyTime now);
  void learn(const Agreed& agreed);
  // From the newest votes: the announced end, the newest durable step, and whether rank 0's saves fail.
  std::optional<SteadyTime> end() const { return end_; }
  std::optional<SteadyTime> named_end() const { return named_end_; }  // that somebody named
  std::optional<Duration> left(SteadyTime now) const;                 // until that end
  std::int64_t durable() const { return durable_; }
  bool failing() const { return failing_; }
  // All ranks know that rank 0 writes alone from now on.
  bool alone() const { return alone_; }

  // For ranks other than 0: a save that was agreed. The votes tell how it ends, unless this rank writes a
  // share of it.
  SaveHandle begin_save(std::shared_ptr<SaveHandle::Shared> save);
  // Ends all open saves. Saves known to be durable become durable.
  void settle(SaveStatus outcome, std::string_view text);

  // Who sees rank 0's volume, by rank. Each of these writes a share of the checkpoints.
  void determine_volume(std::vector<bool> sees);
  // False until that was determined.
  bool sees(int rank) const { return !sees_.empty() && sees_[static_cast<std::size_t>(rank)]; }
  bool all_see() const;
  bool sharing() const { return sharing_; }  // another rank sees it
  // Before the first call of shared(): the attempt is known.
  void begin_sharing(AttemptNumber attempt, Clock& clock);
  SharedWriter& shared() { return *shared_; }
  // Limits of this rank's waits and writes for shared saves. Threads: any.
  Patience& patience() { return patience_; }
  const Patience& patience() const { return patience_; }
  const std::atomic<bool>& limit_lifted() const { return limit_lifted_; }
  // Shares are written without a speed limit from lift_limit() until restore_limit().
  void lift_limit() noexcept { limit_lifted_ = true; }
  void restore_limit() noexcept { limit_lifted_ = false; }

  // Afterwards no thread of the writer uses the channel or the source. Waits for a thread that uses one now.
  void part();
  // For the writer's thread: runs `work`, which uses the source. Throws Error if this rank has parted.
  template <class Work>
  void before_parting(const Work& work) {
    const SharedLock lock(parting_->mutex);
    if (parting_->parted) throw Error("the run has ended");
    work();
  }

  // Texts between ranks are JSON objects. hear() throws `Error` if the text is not a JSON object.
  void tell(const char* name, const nlohmann::json& value);
  nlohmann::json hear(int rank, const char* name, Duration limit);
  // nullopt: it did not come within `slice`.
  std::optional<nlohmann::json> hear_within(int rank, const char* name, Duration slice);

 private:
  RankChannel& channel_;
  const std::shared_ptr<Parting> parting_ = std::make_shared<Parting>();
  DetachableChannel guarded_;
  RankedSource ranked_;

  SteadyTime posted_{};  // when the newest vote was posted
  std::optional<SteadyTime> end_, named_end_;
  std::int64_t durable_ = -1;
  bool failing_ = false;
  bool alone_ = false;
  std::vector<std::shared_ptr<SaveHandle::Shared>> open_;

  std::vector<bool> sees_;
  bool sharing_ = false;
  std::unique_ptr<SharedWriter> shared_;
  Patience patience_;
  std::atomic<bool> limit_lifted_{false};
};

// nullptr without a channel, or for a world of one.
std::unique_ptr<RankGroup> ranks_of(RankChannel* channel, SnapshotSource& source);

// Names of the texts between ranks. A text belongs to its sender, so the names need no rank.
inline constexpr char kPeeked[] = "peeked";        // from rank 0: the checkpoint that it sees
inline constexpr char kCandidate[] = "candidate";  // from rank 0: the checkpoint that it would start from
inline constexpr char kChecked[] = "checked";      // from all: their check of it
inline constexpr char kVerdict[] = "verdict";      // from rank 0: the result of its resume()
inline constexpr char kImage[] = "image";          // from a rank that reads for others: where it has it
inline constexpr char kReady[] = "ready";          // from all
inline constexpr char kOutcome[] = "outcome";      // from rank 0: the result of its finish(), or that it asks
inline constexpr char kToldToStop[] = "told";      // … the others: whether they were told to stop
inline constexpr char kAfterAll[] = "after all";   // … and that is its result
std::string own_text(std::int64_t step);           // a rank's own state at that step. It begins with …
std::string boundary_text(std::int64_t step, int evaluation);  // own state at the start of that evaluation
inline constexpr char kOwnBytes = '=';                         // … this before the bytes
inline constexpr char kNoOwn = '!';  // … or this before the reason why there are none

}}}  // namespace holdfast::v0_2::internal
