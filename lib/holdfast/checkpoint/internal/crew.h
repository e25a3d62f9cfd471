// What a Checkpointer keeps about the other ranks of its run: which are its companions, what they have agreed
// so far, and the save that they know of.
//
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/checkpoint/internal/ranked_state.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1::internal {

class Crew {
 public:
  Crew(Companions& the_companions, SnapshotSource& own)
      : companions(the_companions), own_(own), ranked_(own, the_companions.world_size()) {
    companions.take();
  }

  bool leads() const { return companions.rank() == 0; }
  int rank() const { return companions.rank(); }
  int world_size() const { return companions.world_size(); }
  // What this rank saves: rank 0's file has room for all.
  SnapshotSource& source() { return leads() ? static_cast<SnapshotSource&>(ranked_) : own_; }

  // Of a rank that does not write: the save that was agreed last, as far as rank 0 tells.
  SaveHandle begin_save(std::shared_ptr<SaveHandle::Shared> save);
  void settle(SaveStatus outcome, std::string_view text);
  void learn(const Agreed& agreed);
  // Until the end that the votes told of.
  std::optional<Duration> left(SteadyTime now) const;
  // No thread of the writer asks the others or the source for anything afterwards. May wait for one that
  // does.
  void part();

  // Texts between ranks are JSON objects. hear() throws Error for one that is none.
  void tell(const char* name, const nlohmann::json& value);
  nlohmann::json hear(int rank, const char* name, Duration limit);

  Companions& companions;
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

  struct Parting {
    std::mutex mutex;
    bool parted = false;
  };
  const std::shared_ptr<Parting> parting = std::make_shared<Parting>();

 private:
  SnapshotSource& own_;
  RankedSource ranked_;
  std::shared_ptr<SaveHandle::Shared> save_;
};

// Null where there are no companions: alone, or a world of one.
std::unique_ptr<Crew> crew_of(Companions* companions, SnapshotSource& source);

// Names of the texts between ranks. `tell` is per rank, so these need not say whose they are.
inline constexpr char kVerdict[] = "verdict";  // rank 0's, of its resume()
inline constexpr char kReady[] = "ready";      // everybody's
inline constexpr char kOutcome[] = "outcome";  // rank 0's, of its finish()
std::string own_text(std::int64_t step);       // what is a rank's own, at that step: begins with
inline constexpr char kOwnBytes = '=';         // … this, before the bytes
inline constexpr char kNoOwn = '!';            // … or this, before why there are none

}  // namespace holdfast::inline v1::internal
