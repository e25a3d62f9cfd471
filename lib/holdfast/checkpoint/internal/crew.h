// What a Checkpointer keeps about the other ranks of its run: which are its companions, what they have agreed
// so far, and the save that they know of.
//
// Threads: the training thread; but Patience, `hurry`, `parting` and `guarded` any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/checkpoint/internal/ranked_state.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"
#include "holdfast/checkpoint/shared_write.h"

namespace holdfast::inline v1::internal {

// So long the shares of living ranks may still become a checkpoint when one was lost, or this one ends.
inline constexpr Duration kPartingGrace = std::chrono::seconds(10);

// Held, shared with others, by whoever uses the companions or the source on a thread of the writer's.
struct Parting {
  std::shared_mutex mutex;
  std::atomic<bool> parted{false};
};

// Texts alone, until this rank has parted.
class PartableCompanions final : public Companions {
 public:
  PartableCompanions(Companions& companions, std::shared_ptr<Parting> parting)
      : rank_(companions.rank()),
        world_size_(companions.world_size()),
        timeout_(companions.timeout()),
        companions_(companions),
        parting_(std::move(parting)) {}
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
  Companions& companions_;
  const std::shared_ptr<Parting> parting_;
};

class Crew {
 public:
  Crew(Companions& the_companions, SnapshotSource& own)
      : companions(the_companions),
        guarded(the_companions, parting),
        ranked_(own, the_companions.rank(), the_companions.world_size()) {
    companions.take();
  }

  bool leads() const { return companions.rank() == 0; }
  int rank() const { return companions.rank(); }
  int world_size() const { return companions.world_size(); }
  // What this rank saves: the file has room for all.
  SnapshotSource& source() { return ranked_; }

  // Of a rank other than 0: a save that was agreed. How it ends is told by the votes, unless a share of it is
  // in hand.
  SaveHandle begin_save(std::shared_ptr<SaveHandle::Shared> save);
  // All that are open, but for those that are durable as far as is known.
  void settle(SaveStatus outcome, std::string_view text);
  void learn(const Agreed& agreed);
  // Until the end that the votes told of.
  std::optional<Duration> left(SteadyTime now) const;
  // By more than that since `patience` was limited.
  bool end_has_moved(Duration by) const;
  // No thread of the writer asks the others or the source for anything afterwards. May wait for one that
  // does.
  void part();

  // Texts between ranks are JSON objects. hear() throws Error for one that is none.
  void tell(const char* name, const nlohmann::json& value);
  nlohmann::json hear(int rank, const char* name, Duration limit);

  Companions& companions;
  const std::shared_ptr<Parting> parting = std::make_shared<Parting>();
  bool asked = false;                  // rank 0: the others know what it would begin with
  bool pending = false;                // a ballot is under way
  SteadyTime posted{};                 // when the last one was
  std::optional<SteadyTime> end = {};  // that the votes learned last told of
  bool passed_on = false;              // rank 0: a notice that others told of stands
  std::int64_t told_own = -1;          // the last step whose own state was told
  std::int64_t told_before = -1;       // and the one before that
  bool own_failed = false;             // what was told of it is why there is none
  Duration brought_in{};               // the longest that bring_together() has taken
  std::int64_t durable = -1;
  bool failing = false;
  // Rank 0: values that made their step one of the best. That step is past when all can save: the checkpoint
  // that follows stands for it, two steps later.
  std::map<std::string, double> best = {};

  // The save that is begun now is written by all ranks, by this plan (Agreed::plan); 0: by rank 0 alone.
  // Rank 0 has `owed` the others the first word about it until its writer takes that over.
  struct Round {
    std::uint64_t number = 0;  // counts the same on all ranks
    std::int64_t plan = 0;
    bool owed = false;
  } round = {};
  bool sharing = false;         // some other rank sees the volume, and all are to write
  std::vector<bool> sees = {};  // by rank; empty: nobody has looked
  std::uint64_t spoiled = 0;    // rank 0: saves that other ranks have, as far as taken note of
  bool alone = false;           // rank 0 writes alone from here on, as all have learned
  bool hopeless = false;        // a stop leaves no time for a save: the same on all ranks
  SteadyTime retry_at{};        // a save in a pause is not tried again before
  Patience patience;
  std::optional<SteadyTime> patient_until = {};  // the `end` that this was limited for
  std::atomic<bool> hurry{false};                // no limit to a share's writes

  // For the writer's thread, which may outlive the companions where it hangs in a disk.
  PartableCompanions guarded;
  std::unique_ptr<SharedWriter> together;  // from resume() on

 private:
  RankedSource ranked_;
  std::vector<std::shared_ptr<SaveHandle::Shared>> open_;
};

// Null where there are no companions: alone, or a world of one.
std::unique_ptr<Crew> crew_of(Companions* companions, SnapshotSource& source);

// Names of the texts between ranks. `tell` is per rank, so these need not say whose they are.
inline constexpr char kCandidate[] = "candidate";  // rank 0's: what it would begin with
inline constexpr char kChecked[] = "checked";      // everybody's, of that
inline constexpr char kVerdict[] = "verdict";      // rank 0's, of its resume()
inline constexpr char kReady[] = "ready";          // everybody's
inline constexpr char kOutcome[] = "outcome";      // rank 0's, of its finish()
std::string own_text(std::int64_t step);           // what is a rank's own, at that step: begins with
inline constexpr char kOwnBytes = '=';             // … this, before the bytes
inline constexpr char kNoOwn = '!';                // … or this, before why there are none

}  // namespace holdfast::inline v1::internal
