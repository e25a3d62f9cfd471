// The news that an image is whole. A snapshot may be handed on while a device still copies parts of it into
// its arena; whoever wants the bytes waits for this first.
//
// Errors: wait() throws Error with the reason when a copy failed; then the image counts for nothing. Sticky.
// Threads: every method may be called from any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::inline v1 {

class Arrival {
 public:
  void wait() const;
  bool arrived() const;  // or failed: wait() would not wait

  // Once, by whoever brings the image. Requires that nothing is written to it afterwards.
  void settle() noexcept;
  void fail(std::string_view reason) noexcept;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable settled_;
  bool done_ = false;
  std::optional<std::string> failure_;
};

}  // namespace holdfast::inline v1
