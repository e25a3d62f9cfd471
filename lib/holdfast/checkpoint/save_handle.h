// What a save promises. `staged` means the snapshot is taken and the state may change again; `durable` means
// it is acknowledged: it survives power loss. A save that a newer request overtook before it was written is
// `overtaken`: nothing is lost, the newer one covers it.
//
// Threads: every method may be called from any thread. The error is sticky: once failed, always failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace holdfast::inline v1 {

enum class SaveStatus { staged, durable, overtaken, failed };

class SaveHandle {
 public:
  SaveHandle() = default;  // a handle on nothing: status failed, error "no save"

  std::int64_t step() const;
  SaveStatus status() const;
  // Waits until durable, overtaken or failed.
  SaveStatus wait() const;
  // nullopt when still being written after `limit`.
  std::optional<SaveStatus> wait_for(std::chrono::nanoseconds limit) const;
  std::string error() const;       // one line; empty unless failed
  std::string checkpoint() const;  // file name; empty unless durable

  struct Shared;  // the writer's side
  explicit SaveHandle(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace holdfast::inline v1
