// What one thread alone may run and use, checked by clang (thread_annotations.h) instead of by a lock. Costs
// nothing.
//
//   ThreadRole writer_;
//   SteadyTime last_look_ HOLDFAST_GUARDED_BY(writer_);
//   void look_around() HOLDFAST_REQUIRES(writer_);
//   void run() { const InRole role(writer_); … look_around(); }   // the first function of that thread
#pragma once

#include "holdfast/base/thread_annotations.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_CAPABILITY("role") ThreadRole {};

// In the first function of the thread, and nowhere else.
class HOLDFAST_SCOPED_CAPABILITY InRole {
 public:
  explicit InRole(const ThreadRole& role) HOLDFAST_ACQUIRE(role) { static_cast<void>(role); }
  // The analysis overlooks a trivial destructor.
  ~InRole() HOLDFAST_RELEASE() {}  // NOLINT(modernize-use-equals-default)
  InRole(const InRole&) = delete;
  InRole& operator=(const InRole&) = delete;
};

}}  // namespace holdfast::v0_2
