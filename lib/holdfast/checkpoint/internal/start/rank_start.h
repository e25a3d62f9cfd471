// The start of several ranks. A standby's ranks wait together, while rank 0 looks at the run
// (standby_wait.h). Then rank 0 finds a state, all ranks check whether they can resume from it, and rank
// 0 claims the directory. One rank of each host that sees the volume reads the file there, for all ranks of
// that host; rank 0 sends it to the others.
//
//   rank 0: lead(), let_others_load()
//   others: follow()
//
// Errors: as StartFinder and RankChannel. Another rank's error is thrown here with its exit code.
// Threads: the training thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/other_ranks.h"
#include "holdfast/checkpoint/internal/start/start_receiver.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RankStart {
 public:
  RankStart(Engine& engine, RankGroup& group)
      : engine_(engine), run_(engine.run), group_(group), receiver_(run_, group, engine.start.finder()) {}

  // Claims the directory. Sends a failure to the others.
  void lead();
  // A failure from here on ends the run on all ranks.
  void let_others_load();
  void follow();

 private:
  void let_others_leave();
  void stand_by();
  bool one_ends();
  nlohmann::json stand_by_with_rank_0();
  std::string in_round(const char* name) const;
  void ask_others(CheckpointStore& store, const Selection& selection, const Start& start);
  std::unique_ptr<File> file_to_share() const;
  bool in_run_directory() const;
  void learn_host(int rank, const nlohmann::json& told, bool image);
  Verdict verdict() const;
  void answer(const nlohmann::json& candidate);
  void agree_on_bits();
  StartFinder& finder() const { return engine_.start.finder(); }

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  StartReceiver receiver_;
  std::unique_ptr<File> file_;           // rank 0: what the others load
  bool asked_ = false;                   // rank 0: the others know which checkpoint it would start from
  int round_ = 0;                        // how often the ranks have begun to stand by
  bool one_ends_ = false;                // rank 0: what one_ends() has told
  SteadyTime look_at_{};                 // rank 0: when it next asks who ends
  std::vector<std::string> host_names_;  // rank 0: by rank
  std::vector<int> hosts_;               // rank 0: by rank, the lowest rank of its host
};

}}}  // namespace holdfast::v0_2::internal
