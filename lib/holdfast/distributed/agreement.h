// The other ranks as a Checkpointer sees them (ranks/rank_channel.h), over c10d:
//
//   holdfast::Agreement agreement(group);
//   holdfast::Checkpointer checkpointer(state, {.directory = …, .ranks = {.channel = &agreement}});
//   const int code = checkpointer.finish();   // after the loop: the same steps on all ranks
//   group.leave();
//
// Requires: the group outlives it; one Agreement per group; all ranks create, use and destroy it together.
// Errors: GroupError (75), which names the lost rank; constructor: as ProcessGroup's.
// Threads: as in rank_channel.h. Costs a thread and a connection to the store.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/rank_channel.h"

namespace holdfast { inline namespace v0_2 {

// The ranks vote about once a second, large worlds every 2 s to 4 s (planning/vote_cadence.h), over the store
// (ranks/store_votes.h): after_step posts a ballot, which a thread carries, and the next after_step reads the
// result, so no step waits for a message. Other steps send nothing. bench_agreement measures the cost. Texts
// go over the store too. If rank 0 sends the checkpoint that the ranks resume from, Gloo connections of their
// own carry it.
//
// Signs of life reveal a rank that died, is stopped or cannot be reached within 10 s, or 20 s in a world of
// 4,096 (docs/several_gpus.md), also to hear(). A rank that hangs otherwise is noticed when result() has
// waited long enough: the Checkpointer waits a tenth of the time left once an end is announced. All these
// throw GroupError, and the group is alone() afterwards. hear() fails only if the rank that it waits for is
// lost, because rank 0's last commit is worth waiting for.
//
// Link holdfast::early_signals. When one rank has ended with 75, a launcher sends SIGTERM to the others. It
// would kill those that have destroyed their Checkpointer and not yet exited.
//
// In a world of one an Agreement does nothing, and the Checkpointer asks it for nothing.
class HOLDFAST_EXPORT Agreement final : public RankChannel {
 public:
  explicit Agreement(ProcessGroup& group);
  ~Agreement() override;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  int rank() const noexcept override;
  int world_size() const noexcept override;
  Duration timeout() const noexcept override;
  void post(const Ballot& mine) override;
  std::optional<Ballot> result(Duration limit) override;
  [[noreturn]] void give_up(const std::string& what, Duration waited) override;
  void tell(const std::string& name, std::string_view text) override;
  std::string hear(int rank, const std::string& name, Duration limit) override;
  void forget(const std::string& name) override;
  void require_all() override;
  bool has_left(int rank) override;
  void expect_silence(Duration longest) noexcept override;
  void call(bool so) noexcept override;
  bool called() const noexcept override;
  std::weak_ptr<const void> saves_in_flight() const override;
  void broadcast(std::span<std::byte> bytes) override;

 private:
  struct Parts;

  template <class Work>
  auto with_partners(const char* what, const Work& work);
  void leave_behind() noexcept;

  ProcessGroup& group_;
  std::atomic<bool> broken_{false};
  std::unique_ptr<Parts> parts_;  // null in a world of one
};

}}  // namespace holdfast::v0_2
