// Keeps signal handlers on the program's own threads: a thread that is started meanwhile never runs one.
//
//   const BlockSignals block;
//   thread_ = std::thread([this] { run(); });   // inherits the mask
//
// Errors: none. Threads: changes the mask of the calling thread, and restores it.
#pragma once

#include <csignal>

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

}}  // namespace holdfast::v0_2
