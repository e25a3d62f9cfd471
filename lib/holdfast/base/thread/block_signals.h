// Keeps signal handlers on the program's own threads: a thread that is started meanwhile never runs one.
//
//   const BlockSignals block;
//   thread_ = std::thread([this] { run(); });   // inherits the mask
//
// Errors: none. Threads: changes the mask of the calling thread, and restores it.
#pragma once

#include <csignal>
#include <thread>

namespace holdfast { inline namespace v0_2 {

class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

// For functions of the program that run on such a thread: a command that they start inherits the mask, and
// with all signals blocked it would outlive every SIGTERM.
class ProgramSignals {
 public:
  // Keeps the mask of this thread, which is the program's.
  ProgramSignals() { pthread_sigmask(SIG_SETMASK, nullptr, &mask_); }

  // On another thread than the program's: has the program's mask until its end.
  class Here {
   public:
    explicit Here(const ProgramSignals& program) : other_(std::this_thread::get_id() != program.thread_) {
      if (other_) pthread_sigmask(SIG_SETMASK, &program.mask_, &before_);
    }
    ~Here() {
      if (other_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    const bool other_;
    sigset_t before_{};
  };

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  sigset_t mask_{};
};

}}  // namespace holdfast::v0_2
