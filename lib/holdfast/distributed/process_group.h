// The processes that train together: who this one is among them, how they find each other, and how they part.
// Collectives are c10d's own, by Gloo for tensors of the CPU and by NCCL for those of a GPU.
//
//   holdfast::ProcessGroup group;  // from the launcher's variables; waits until all are there
//   holdfast::DataParallel parallel(*net, group);  // data_parallel.h
//   …
//   group.leave();  // all together, once nothing is under way
//
// A process that nobody launched is a world of one: no store, no port, no thread, and c10d() is null. Code
// written for many runs as it stands.
//
// Starting: rank 0 listens at MASTER_ADDR:MASTER_PORT; the others come there within `start_timeout` and say
// which rank of which job they are. Whoever does not come, comes twice, or belongs to another job is named by
// all. Then every two are connected. Gloo takes the address by which this host reaches rank 0's, or that of
// GLOO_SOCKET_IFNAME; NCCL finds its own (NCCL_SOCKET_IFNAME).
//
// Losing one: each process gives two signs of life a second, from a thread of its own (four short messages to
// the store). Who has given none for `silence` is lost, and all others know it within 10 s: it died, its
// machine or the network hangs, or somebody has stopped it. With Gloo every collective fails then, and one
// that a dead partner was in fails at once (the connection closes). guard() says who is lost, by the signs of
// life or by a roll call of a few seconds over the store: GroupError, exit code 75. A rank that is busy,
// however long, is not lost: that is waited for until `timeout`, and never named. One that a debugger holds
// for longer than `silence` is, and finds the others gone when it goes on: raise `silence` to debug. A rank
// that has given no sign yet has five times as long: it may be loading libraries. Nothing here is ever waited
// for without an end, also not where rank 0, which keeps the store, is what hangs. SIGPIPE is ignored from
// the constructor on, unless the program has a handler for it: a partner's closed connection must not end
// this process.
//
// With NCCL a collective fails on the device, after guard() has returned, while the training thread waits for
// the GPU. c10d's watchdog notices an error of NCCL's at once, and a hang `timeout` later; a thread here sees
// it, and that a rank gives no sign of life, within a tenth of a second. The next guard() throws GroupError,
// as above. If none comes within 30 s, or unwinding waits for the device, that thread says who does not
// answer and ends the process with exit code
// 75. Communicators are aborted by this class's destructor, not before: kernels that are aborted leave any
// numbers behind, and a save that waits for them would commit those. So it must outlive whatever saves. For
// this TORCH_NCCL_ASYNC_ERROR_HANDLING is set to 0, unless the environment has it: c10d does then what that
// says (3, its own default, aborts the process a minute later).
//
// Parting: leave() waits until all are there, so that nobody closes a connection that another still uses. The
// destructor does it when it was forgotten; while an exception passes, it leaves without the others, and
// tells them so (rank 0 cannot: its store ends with it). It must run before main returns: never put one into
// a global.
//
// Errors: UsageError for variables that are wrong (base/launch_environment.h), a port that is taken, another
// job at it, two processes of one rank, two ranks on one GPU, a GPU in a build without CUDA; GroupError for
// ranks that are missing or lost. Both name ranks, address and remedy. Threads: the training thread.
// Collectives of c10d() may come from one other thread at a time, in the same order on all ranks. Costs two
// threads of Gloo, two for the signs of life, one of the store on rank 0; NCCL brings its own.
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
#include "holdfast/base/launch_environment.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace holdfast::inline v1 {

class Pulse;
class RollCall;
class StoreLine;

// Ranks are missing or lost. What was committed stands; start all of them again.
class GroupError : public Error {
 public:
  explicit GroupError(const std::string& message) : Error(message, ExitCode::interrupted) {}
};

struct GroupOptions {
  LaunchEnvironment place = launch_environment();
  // The device that this rank trains on; a CUDA device brings NCCL.
  c10::Device device = c10::kCPU;
  // Until all ranks are there: machines of one job can start minutes apart.
  Duration start_timeout = std::chrono::minutes(10);
  // Of one collective, and of waiting for a rank that is still busy otherwise (an evaluation, the last save).
  Duration timeout = std::chrono::minutes(5);
  // Without a sign of life from a rank until it counts as lost; the others know it within two or three
  // seconds more.
  Duration silence = std::chrono::seconds(6);
  // Collectives also in a world of one: to measure or to test them.
  bool even_alone = false;
};

class ProcessGroup {
 public:
  explicit ProcessGroup(GroupOptions options = {});
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return options_.place.rank; }
  int world_size() const { return options_.place.world_size; }
  const LaunchEnvironment& place() const { return options_.place; }
  Duration timeout() const { return options_.timeout; }
  // No collectives: a world of one, after leave(), or after a partner was lost.
  bool alone() const { return parts_ == nullptr; }

  // Null when alone().
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

  // Runs `work`, in which collectives happen. Where one fails because of a partner or the network, GroupError
  // says who; other exceptions pass. `what` is for the message: "gradients".
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

  // Every rank's text, in their order. Collective; over the store, so for small texts that are exchanged now
  // and then.
  std::vector<std::string> exchange(const char* what, const std::string& text);

  // Parts when all ranks are here, and is alone afterwards. Collective. GroupError when some do not come;
  // this one has then left all the same.
  void leave();

 private:
  friend class Agreement;
  struct Parts;
  struct Nccl;

  // Connections of their own between all ranks, by Gloo, under that name. Collective. Requires !alone().
  c10::intrusive_ptr<c10d::Backend> connect_apart(const std::string& name);
  const StoreLine& line() const;                // requires !alone()
  std::string address() const;                  // of this host, for the others
  std::shared_ptr<Pulse> pulse() const;         // null in a world of one. Requires !alone()
  std::shared_ptr<RollCall> roll_call() const;  // as well
  void throw_if_failed(const char* what);       // on the device
  void throw_if_lost(const char* what, const std::exception& error);
  void drop() noexcept;

  GroupOptions options_;
  std::unique_ptr<Nccl> nccl_;  // a GPU's
  std::unique_ptr<Parts> parts_;
};

}  // namespace holdfast::inline v1
