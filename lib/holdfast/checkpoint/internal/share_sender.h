// What a rank other than 0 gives to a checkpoint: its share of the file, written by a thread of its own, or
// else what is its own as a text that rank 0 puts into its image.
//
// Errors: tell_own() as RankChannel. What goes wrong in send() fails this save on all ranks, but where rank 0
// writes alone. Threads: the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/shared_rounds.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/share_writer_thread.h"

namespace holdfast { inline namespace v1 { namespace internal {

class ShareSender {
 public:
  ShareSender(Engine& engine, RankGroup& group, SharedRounds& rounds)
      : engine_(engine), run_(engine.run), group_(group), rounds_(rounds) {}

  // All ranks that see rank 0's volume write, this one among them.
  void begin_sharing();

  // Where all save.
  void send(Decision& decision, bool last_one);
  // Once for each step. What it cannot tell fails this save alone.
  void tell_own();
  // An evaluation begins. Without that text, nothing is committed before it is over.
  void tell_boundary(const std::string& name) noexcept;

  // It still writes its share of the save before.
  bool busy() const { return writer_ && writer_->busy(); }
  // Nobody waits for others any longer than that. False: a share hangs in the disk, and is left behind.
  bool rest(Duration grace) noexcept;

 private:
  void send_share(Decision& decision, bool last_one);
  Staged stage(bool last_one);
  bool wait_for_image();
  std::string own_now(std::int64_t step);
  void begin_save(Decision& decision, const BegunSave& save);

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  SharedRounds& rounds_;
  std::unique_ptr<ShareWriterThread> writer_;  // null: rank 0 writes alone
  std::int64_t told_ = -1;                     // last step whose own state was told
  std::int64_t told_before_ = -1;              // the one before that
  bool own_failed_ = false;                    // that text was the reason for a failure, not the state
  std::vector<std::string> told_boundaries_;   // names of the last texts with own state in an evaluation
};

}}}  // namespace holdfast::v1::internal
