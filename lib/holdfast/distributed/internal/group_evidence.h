// What a rank keeps before NCCL's watch ends it: where its threads stand, and what it has heard of the others
// (stall_evidence.h).
//
// Errors: none. Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base/mutex.h"
#include "holdfast/ranks/pulse.h"

namespace holdfast { inline namespace v0_2 {

class GroupEvidence {
 public:
  // `pulse` may be null, or end earlier than this object.
  explicit GroupEvidence(std::weak_ptr<const Pulse> pulse) : pulse_(std::move(pulse)) {}

  // StoreVotes::account() of the newest votes. They begin later than NCCL's watch.
  void follow(std::function<std::string()> votes);
  // Takes less than a second: a rank whose collective failed ends within three of the verdict.
  void keep(const std::string& why) noexcept;

 private:
  const std::weak_ptr<const Pulse> pulse_;
  Mutex mutex_;
  std::function<std::string()> votes_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
