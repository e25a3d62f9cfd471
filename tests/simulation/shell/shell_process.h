// One process of a simulated training: a state, a real Checkpointer, the loop around them, and the program's
// other threads. What it sees of the Checkpointer goes to its ShellRun, which judges it.
//
// Errors: none. Threads: fibers of its group.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fibers.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "stepped_state.h"
#include "support/fault_file_system.h"
#include "support/memory_world.h"
#include "weather.h"

namespace holdfast::simulation {

class ShellRun;
struct ShellAttempt;

// A program's source of notices.
struct News {
  ~News() { close(event); }
  std::vector<Notice> waiting;
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

  void tell(Notice notice) {
    waiting.push_back(std::move(notice));
    eventfd_write(event, 1);
  }
};

class ShellProcess {
 public:
  ShellProcess(ShellRun& run, ShellAttempt& attempt, int rank, Fibers::Group group);

  void start();
  bool alone() const;
  bool leads() const { return rank <= 0; }
  // For the threads of the program. False: there is no Checkpointer any more, or not yet.
  template <class Work>
  bool with_checkpointer(const Work& work) {
    if (checkpointer_ == nullptr || finished) return false;
    ++calling_;
    work(*checkpointer_);
    --calling_;
    return true;
  }

  ShellRun& run;
  ShellAttempt& attempt;
  const int rank;
  const Fibers::Group group;
  SteppedState state;
  test::MemoryFileSystem nothing;
  test::FaultFileSystem view;
  std::shared_ptr<News> news = std::make_shared<News>();

  std::optional<Resumed> resumed;
  bool told = false;      // after_step() or tick() said stop
  bool finished = false;  // finish() has returned
  bool ended = false, lost = false;
  SteadyTime stop_by = Fibers::kNever;  // the deadline of a stop that it was told
  std::int64_t failed_at = -1;          // the step of an evaluation that failed
  bool leaves = false;                  // and the program ends its loop there
  bool computing = false;               // the next after_step() is still to come
  bool writing = false;                 // a save is staged, and not settled
  int code = -1;                        // of finish()
  std::string error;                    // that ended it instead
  int error_code = -1;
  AttemptNumber number = 0;
  SteadyTime moved{};        // the loop's last sign of life
  int other_threads = 0;     // of the program
  bool left_behind = false;  // a thread of the Checkpointer outlives it, because it waits for the disk

 private:
  CheckpointerOptions options();
  void live();
  void ask();
  void await_other_threads();
  void train(Checkpointer& checkpointer);
  bool step(Checkpointer& checkpointer);
  void evaluate(Checkpointer& checkpointer);
  void finish(Checkpointer& checkpointer);
  void check_stop() const;
  void hear(const SaveEvent& event);
  void watch_handles(bool all_over);
  void keep(const SaveHandle& handle);

  Chance chance_;
  Checkpointer* checkpointer_ = nullptr;
  std::map<std::int64_t, int> staged_, settled_;  // events by step
  struct Kept {
    SaveHandle handle;
    SaveStatus last;
  };
  std::vector<Kept> handles_;
  int waiters_ = 0;
  int calling_ = 0;  // other threads, now
  SteadyTime staged_at_{};
  Duration longest_save_{};
};

}  // namespace holdfast::simulation
