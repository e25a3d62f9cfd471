// The mirror of `supervise --mirror`: a process of its own beside the trainer. The front process starts it,
// and again if it dies; the supervisor, in a child of the front process, asks it (front_process.h).
//
//   MirrorProcess mirror(request);         // before any thread
//   return run_apart([&] { return Supervisor(options, &mirror).run(); },
//                    [&](pid_t who) { return mirror.lives_after(who); });
//
// Errors: IoError if no process can be made. Threads: one.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/cli/mirror/mirror_run.h"

namespace holdfast { inline namespace v0_2 {

class MirrorProcess {
 public:
  explicit MirrorProcess(MirrorRequest request);
  ~MirrorProcess();
  MirrorProcess(const MirrorProcess&) = delete;
  MirrorProcess& operator=(const MirrorProcess&) = delete;

  // In the front process: a child has ended (0: none). Starts the mirror again if it was that one. False: not
  // yet, because a pause bounds the log or the machine allows no process; ask again soon.
  bool lives_after(pid_t who);

  // In the supervisor. Requests are sent again until they are answered, because a mirror may die.
  struct Answer {
    int code = 0;  // 0: done; otherwise the exit code that the supervisor ends with
    std::string text = {};
  };
  // A trainer is about to start.
  void ask_for_start();
  // For how long the mirror has not run at all. It looks at its requests every second, so it stands in a call
  // of the kernel then: HOME is on a mount whose server is gone.
  Duration stands_still();
  // A new mirror answers the start from the run directory alone.
  void do_without_home();
  // There will be no newer checkpoint: is the newest home?
  void ask_for_end();
  std::optional<Answer> answer();
  // Somebody else owns HOME. Empty: nobody does.
  const std::string& superseded_by() const { return superseded_by_; }

 private:
  // What a mirror leaves to its successor, in memory that the processes share.
  struct SharedWithSuccessor {
    std::atomic<bool> started{false};       // a trainer has started
    std::atomic<bool> without_home{false};  // it is to answer a start before it looks at HOME
    std::atomic<pid_t> id{0};               // the mirror that lives
    std::atomic<std::uint32_t> count{0};
    std::array<std::atomic<AttemptNumber>, 64> claims{};
    // Of the start that is under way: StartTries::newest; an attempt of 0: none.
    std::atomic<AttemptNumber> newest_attempt{0};
    std::atomic<std::int64_t> newest_step{0};
    void add(AttemptNumber claim) { claims.at(count++ % claims.size()) = claim; }
  };
  class Served;

  bool start();  // false with errno: no process can be made
  void send();
  void ask(char what);

  const MirrorRequest request_;
  int ours_ = -1;
  int theirs_ = -1;
  SharedWithSuccessor* shared_ = nullptr;
  pid_t id_ = -1;
  const pid_t front_;
  SteadyTime started_{};
  SteadyTime not_before_{};  // of the next start
  bool said_refused_ = false;
  std::uint64_t serial_ = 0;
  std::string asked_;  // the request that waits for an answer; empty: none
  SteadyTime sent_{};
  std::string activity_;  // of the mirror's threads, at the last look
  SteadyTime looked_{}, active_{};
  std::string superseded_by_;
};

}}  // namespace holdfast::v0_2
