// The other ranks as a Checkpointer sees them (checkpoint/companions.h), over c10d:
//
//   holdfast::ProcessGroup group;
//   holdfast::Agreement agreement(group);
//   holdfast::Checkpointer checkpointer(state, {.directory = …, .companions = &agreement});
//   checkpointer.resume();
//   …the loop, the same steps on all ranks…
//   const int code = checkpointer.finish();
//   group.leave();
//
// Ballots go up a binary tree of connections and their maximum comes down it (internal/ballot_tree.h): a step
// costs a rank one message to its parent and one to each of its children. A ballot is begun by after_step and
// read by the next: no step waits for a message, and gradients have other connections. bench_agreement counts
// what it costs. The checkpoint that is resumed from is sent by a Gloo group of its own.
// Texts go over the store that the ranks met by.
//
// A partner that dies is noticed by the exchange that it was in, one that is stopped or out of reach within
// 10 s, by its signs of life (process_group.h) — both by hear(), too, whoever of the two ranks waits — and
// one that hangs otherwise when result() was asked for long enough (the Checkpointer's patience is a tenth of
// the time that is left, once an end is announced). All end as ProcessGroup::guard ends them: with a
// GroupError that names who is lost. The group is alone() from then on. hear() waits for one rank, so the
// loss of another is none of its business: rank 0's last commit is worth waiting for.
//
// Link holdfast::early_signals: once one rank has ended with 75 a launcher sends SIGTERM to the others, which
// may be between the end of their Checkpointer and that of their process, and would die of it.
//
// In a world of one it does nothing, and the Checkpointer asks it for nothing.
// Requires: the group outlives it, one Agreement a group; made, used for broadcast() and destroyed by all
// ranks together, though a lost partner is not waited for. Errors: GroupError (75); what the constructor
// cannot connect, as ProcessGroup's. Threads: as companions.h says. Costs two threads of Gloo and a
// connection to each rank, and where a rank has children in the tree a thread more.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast::inline v1 {

class Agreement final : public Companions {
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

}  // namespace holdfast::inline v1
