// What a Checkpointer keeps about the other ranks of its run: the channel to them, what the votes agreed on,
// and the saves that all ranks know.
//
// Errors: as RankChannel. Threads: the training thread; Patience, `hurry`, `parting` and `guarded` any.
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

#include "holdfast/base/mutex.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/shared_write.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v1 { namespace internal {

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

class RankGroup {
 public:
  RankGroup(RankChannel& the_channel, SnapshotSource& own)
      : channel(the_channel),
        guarded(the_channel, parting),
        ranked_(own, the_channel.rank(), the_channel.world_size()) {
    channel.take();
  }

  bool leads() const { return channel.rank() == 0; }
  int rank() const { return channel.rank(); }
  int world_size() const { return channel.world_size(); }
  // The source of this rank's saves. The file has room for the tensors of all ranks.
  SnapshotSource& source() { return ranked_; }

  // For ranks other than 0: a save that was agreed. The votes tell how it ends, unless this rank writes a
  // share of it.
  SaveHandle begin_save(std::shared_ptr<SaveHandle::Shared> save);
  // Ends all open saves. Saves known to be durable become durable.
  void settle(SaveStatus outcome, std::string_view text);
  void learn(const Agreed& agreed);
  // All of them see rank 0's volume, as far as that was determined.
  bool all_see() const;
  // Time until the end that the votes reported.
  std::optional<Duration> left(SteadyTime now) const;
  // Afterwards no thread of the writer uses the channel or the source. Waits for a thread that uses one now.
  void part();

  // Texts between ranks are JSON objects. hear() throws `Error` if the text is not a JSON object.
  void tell(const char* name, const nlohmann::json& value);
  nlohmann::json hear(int rank, const char* name, Duration limit);

  RankChannel& channel;
  const std::shared_ptr<Parting> parting = std::make_shared<Parting>();
  bool asked = false;                  // rank 0: the others know which checkpoint it would start from
  SteadyTime posted{};                 // when the newest vote was posted
  std::optional<SteadyTime> end = {};  // announced end, from the newest votes
  std::int64_t durable = -1;
  bool failing = false;
  bool sharing = false;         // another rank sees the volume, so all ranks write
  std::vector<bool> sees = {};  // by rank; empty: not determined
  bool alone = false;           // all ranks know that rank 0 writes alone from now on
  Patience patience;
  std::atomic<bool> hurry{false};  // shares are written without a speed limit

  // For the writer's thread, which may outlive the channel if a disk hangs.
  DetachableChannel guarded;
  std::unique_ptr<SharedWriter> together;  // set by resume()

 private:
  RankedSource ranked_;
  std::vector<std::shared_ptr<SaveHandle::Shared>> open_;
};

// nullptr without a channel, or for a world of one.
std::unique_ptr<RankGroup> ranks_of(RankChannel* channel, SnapshotSource& source);

// Names of the texts between ranks. A text belongs to its sender, so the names need no rank.
inline constexpr char kCandidate[] = "candidate";  // from rank 0: the checkpoint that it would start from
inline constexpr char kChecked[] = "checked";      // from all: their check of it
inline constexpr char kVerdict[] = "verdict";      // from rank 0: the result of its resume()
inline constexpr char kReady[] = "ready";          // from all
inline constexpr char kOutcome[] = "outcome";      // from rank 0: the result of its finish()
std::string own_text(std::int64_t step);           // a rank's own state at that step. It begins with …
std::string boundary_text(std::int64_t step, int evaluation);  // own state at the start of that evaluation
inline constexpr char kOwnBytes = '=';                         // … this before the bytes
inline constexpr char kNoOwn = '!';  // … or this before the reason why there are none

}}}  // namespace holdfast::v1::internal
