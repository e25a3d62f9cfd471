// Hears notices from the first moment of a Checkpointer on: makes their sources, tells the ledger and the
// other ranks, and watches whether the training looks at them (NoticeWatch).
//
// Errors: start() throws Error if no thread can be made, and what a source's constructor throws.
// Threads: heard() and let_go() any; the others the training thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_partners.h"
#include "holdfast/interruption/notice_watch.h"

namespace holdfast { inline namespace v1 { namespace internal {

class NoticeListener {
 public:
  // What can be done about a notice without the training thread, on a thread of the watch: an evaluation goes
  // on, and its boundary is committed.
  struct Evaluating {
    std::function<bool()> runs;
    std::function<void()> commit;
  };
  NoticeListener(Run& run, SavePartners& partners, Evaluating evaluating);

  // From here on a signal is heard, also while resume() waits for a volume or reads a large state.
  void start();
  // Between these two the training is expected to look.
  void begin() noexcept { watch_.begin(); }
  void end() noexcept { watch_.end(); }
  void stop() noexcept;

  // The training looks.
  void heard() noexcept { watch_.heard(); }
  // There is work for Evaluating::commit.
  void wake() noexcept { watch_.wake({}); }
  // Paused, and the step is durable: the machine may go at once.
  void let_go(bool so) noexcept { may_go_ = so; }

 private:
  RiskCommand command_for(const Notice& notice) const;
  std::string pending_text() const;

  Run& run_;
  SavePartners& partners_;
  std::atomic<bool> may_go_{false};
  NoticeWatch watch_;
};

}}}  // namespace holdfast::v1::internal
