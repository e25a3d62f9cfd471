// Lifts the speed limit of writes (WritingOptions::write_limit) while a thread waits for one under time
// pressure.
//
// Errors: none. Threads: the training thread.
#pragma once

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_partners.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class WriteLimit {
 public:
  WriteLimit(Run& run, SavePartners& partners) : run_(run), partners_(partners) {}

  bool lifted() const { return lifted_; }
  void lift() noexcept {
    partners_.lift_limit();
    if (!run_.writer) return;
    run_.writer->lift_limit();
    lifted_ = true;
  }
  // Does nothing while a stop or a deadline is still announced.
  void restore() noexcept {
    partners_.restore_limit();
    if (!lifted_ || run_.outlook.must_stop() || run_.outlook.announced().deadline()) return;
    run_.writer->restore_limit();
    lifted_ = false;
  }

 private:
  Run& run_;
  SavePartners& partners_;
  bool lifted_ = false;
};

}}}  // namespace holdfast::v0_2::internal
