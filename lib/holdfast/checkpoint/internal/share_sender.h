// The part of a rank other than 0 in a checkpoint: its share of the file, which a separate thread writes, or
// its own state as a text that rank 0 puts into its image.
//
// Errors: tell_own() as RankChannel. A failure in send() fails this save on all ranks, unless rank 0 writes
// alone. Threads: the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/shared_rounds.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/share_writer_thread.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class ShareSender {
 public:
  ShareSender(Engine& engine, RankGroup& group, SharedRounds& rounds)
      : engine_(engine), run_(engine.run), group_(group), rounds_(rounds) {}

  // From here on this rank writes shares, because it sees rank 0's volume.
  void begin_sharing();

  // At a boundary where all ranks save.
  void send(Decision& decision, bool last_one);
  // Once for each step. A failure fails this save alone.
  void tell_own();
  // This step is the last: what is sent of it from here on is this rank's own state now.
  void hold() noexcept;
  // An evaluation begins. Without this text, rank 0 commits nothing before it is over.
  void tell_boundary(const std::string& name) noexcept;

  // The share of an earlier save is still being written.
  bool busy() const { return writer_ && writer_->busy(); }
  // Waits at most `grace` for the share in flight. False: it hangs in the disk, and is left behind.
  bool rest(Duration grace) noexcept;

 private:
  void send_share(Decision& decision, bool last_one);
  Staged stage(bool last_one);
  bool wait_for_image();
  std::string own_now(std::int64_t step);
  std::string own() const;
  void begin_save(Decision& decision, const BegunSave& save);

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  SharedRounds& rounds_;
  std::unique_ptr<ShareWriterThread> writer_;  // null: rank 0 writes alone
  std::int64_t told_ = -1;                     // last step whose own state was told
  std::int64_t told_before_ = -1;              // the one before that
  std::int64_t held_step_ = -1;                // the step of held_own_
  std::string held_own_;                       // own state as after_step() left it
  bool own_failed_ = false;                    // that text was the reason for a failure, not the state
  std::vector<std::string> told_boundaries_;   // names of the last texts with own state in an evaluation
};

}}}  // namespace holdfast::v0_2::internal
