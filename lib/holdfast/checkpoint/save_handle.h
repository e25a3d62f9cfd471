// What a save promises, and how far it is. `staging`: it is being copied; a copy that runs beside the next
// forward and backward ends with before_update(). `staged`: the snapshot is taken and the state may change
// again. `durable`: it is acknowledged, it survives power loss. A save that a newer request overtook before
// it was written is `overtaken`: nothing is lost, the newer one covers it.
//
// Threads: every method may be called from any thread. On the training thread a copy that waits for that
// thread's own before_update() is not waited for: wait, wait_staged and wait_for return `staging` at once.
// The error is sticky: once failed, always failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/checkpoint/save_figures.h"

namespace holdfast::inline v1 {

enum class SaveStatus { staging, staged, durable, overtaken, failed };

class SaveHandle {
 public:
  SaveHandle() = default;  // a handle on nothing: status failed, error "no save"

  std::int64_t step() const;
  SaveStatus status() const;
  // Waits until it is no longer staging.
  SaveStatus wait_staged() const;
  // Waits until durable, overtaken or failed. On a rank that learns it from another (companions), its
  // training thread returns at once, with what is known.
  SaveStatus wait() const;
  // nullopt when still being staged or written after `limit`.
  std::optional<SaveStatus> wait_for(std::chrono::nanoseconds limit) const;
  std::string error() const;       // one line; empty unless failed
  std::string checkpoint() const;  // file name; empty unless durable
  SaveFigures figures() const;     // as far as they are known

  struct Shared;  // the writer's side
  explicit SaveHandle(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

 private:
  std::shared_ptr<Shared> shared_;
};

// A save has come to `status`, which is never `staging`. The texts live as long as the call.
struct SaveEvent {
  SaveStatus status = SaveStatus::failed;
  std::int64_t step = 0;
  std::string_view checkpoint = {};  // file name; empty unless durable
  std::string_view error = {};       // one line; empty unless failed
  SaveFigures figures = {};          // as far as they are known
};
using OnSave = std::function<void(const SaveEvent&)>;

}  // namespace holdfast::inline v1
