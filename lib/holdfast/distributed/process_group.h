// The processes that train together: which rank this one is, how the ranks meet, and how they part.
// Collectives are c10d's: Gloo for CPU tensors, NCCL for GPU tensors. Details: docs/ranks_in_detail.md.
//
//   holdfast::ProcessGroup group;  // from the launcher's variables; waits until all ranks are there
//   holdfast::DataParallel parallel(*net, group);
//   group.leave();                 // all together, when nothing is under way
//
// Errors: UsageError for wrong variables (base/launch_environment.h), a port in use, another job at it, a
// rank that exists twice, two ranks on one GPU, a GPU in a build without CUDA. GroupError: a rank is lost.
// Threads: the training thread. One other thread at a time may call collectives, in the same order on all
// ranks. Costs two Gloo threads, two for signs of life, and one for the store on rank 0.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/export.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/ranks/rank_channel.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace holdfast { inline namespace v0_2 {

class Connections;
class Pulse;
class RollCall;
class StoreLine;
class StoreVotes;

struct GroupOptions {
  LaunchEnvironment place = launch_environment();
  // The device that this rank trains on. A CUDA device starts NCCL.
  c10::Device device = c10::kCPU;
  // Longest wait until all ranks are there. Ten minutes, because machines of one job can start minutes apart.
  Duration start_timeout = std::chrono::minutes(10);
  // Longest time of one collective, and of a wait for a rank that is busy (an evaluation, the last save).
  Duration timeout = std::chrono::minutes(5);
  // Time without a sign of life after which a rank is lost. The others know it two or three seconds
  // later, and up to 13 s after the last sign at 1,024 ranks (docs/ranks_in_detail.md).
  // HOLDFAST_SILENCE overrides it. Shorter: a busy network may look like a loss.
  Duration silence = std::chrono::seconds(6);
  // Makes collectives also in a world of one, for measurements and tests.
  bool even_alone = false;
};

// A process without a launcher is a world of one: no store, no port, no thread, and c10d() is null. Code for
// several ranks runs unchanged.
//
// The constructor ignores SIGPIPE, unless the program has a handler for it: a partner's closed connection
// must not kill this process. The group must outlive everything that saves, because its destructor aborts
// NCCL. Never make it global: it must be destroyed before main returns.
class HOLDFAST_EXPORT ProcessGroup {
 public:
  explicit ProcessGroup(GroupOptions options = {});
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return options_.place.rank; }
  int world_size() const { return options_.place.world_size; }
  const LaunchEnvironment& place() const { return options_.place; }
  Duration timeout() const { return options_.timeout; }
  // True without collectives: in a world of one, after leave(), or after a rank was lost.
  bool alone() const { return parts_ == nullptr; }

  // Null if alone().
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

  // Runs `work`, which makes collectives. If one fails because of a partner or the network, throws
  // GroupError, which says which rank is lost. Other exceptions pass. `what` is for the message: "gradients".
  template <class Work>
  decltype(auto) guard(const char* what, Work&& work) {
    throw_if_failed(what);
    try {
      return work();
    } catch (const std::exception& error) {
      throw_if_lost(what, error);
      throw;
    }
  }

  // Returns every rank's text, in the order of ranks. Collective. It uses the store, so only for small texts
  // and rarely.
  std::vector<std::string> exchange(const char* what, const std::string& text);

  // Parts when all ranks are here; this rank is alone() afterwards. Collective. GroupError if a rank does not
  // come; this one has left nevertheless.
  void leave();

 private:
  friend class Agreement;
  struct Parts;
  struct Nccl;

  // Separate Gloo connections between all ranks, under that name; their sockets are added to `own`.
  // Collective. Requires !alone().
  c10::intrusive_ptr<c10d::Backend> connect_apart(const std::string& name, Connections& own);
  // Votes of their own over the store; leave() ends them. Collective. Requires more than one rank.
  std::shared_ptr<StoreVotes> votes_apart();
  const StoreLine& line() const;                // requires !alone()
  std::shared_ptr<Pulse> pulse() const;         // null in a world of one. Requires !alone()
  std::shared_ptr<RollCall> roll_call() const;  // as pulse()
  std::weak_ptr<const void> saves() const;      // RankChannel::saves_in_flight()
  void throw_if_failed(const char* what);       // a collective failed on the device
  void throw_if_lost(const char* what, const std::exception& error);
  void drop() noexcept;

  GroupOptions options_;
  std::unique_ptr<Nccl> nccl_;  // null without a GPU
  std::unique_ptr<Parts> parts_;
};

}}  // namespace holdfast::v0_2
