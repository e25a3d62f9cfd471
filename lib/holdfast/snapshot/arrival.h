// Signals that an image is complete. A snapshot may be passed on while a device still copies parts of it into
// the arena; a thread that needs the bytes waits for this first.
//
// Errors: wait() throws Error with the reason if a copy failed; the image is then invalid. Sticky.
// Threads: every method may be called from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT Arrival {
 public:
  void wait() const;
  bool arrived() const;  // or failed: wait() would not block

  // Call one of these once, after the last write to the image.
  void settle() noexcept;
  void fail(std::string_view reason) noexcept;

 private:
  mutable Mutex mutex_;
  mutable CondVar settled_;
  bool done_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::optional<std::string> failure_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
