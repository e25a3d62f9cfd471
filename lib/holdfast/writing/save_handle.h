// The state of one save. `staging`: its state is being copied; a copy that runs beside the next forward and
// backward ends with before_update(). `staged`: the copy is complete, and the state may change again.
// `durable`: acknowledged, so it survives power loss. `overtaken`: a newer request replaced it before it was
// written; nothing is lost, the newer one covers it. `failed` is final.
//
// With a mirror (docs/two_tiers.md), wait_home() waits until the checkpoint is in the second place as well.
//
// Errors: error() has the text. Threads: every method from any thread. wait, wait_staged and wait_for return
// `staging` at once on the training thread if only that thread's before_update() can end the copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/ledger/save_figures.h"

namespace holdfast { inline namespace v0_2 {

enum class SaveStatus { staging, staged, durable, overtaken, failed };

// home: HOME has this checkpoint or a newer one of this attempt, verified. away: not yet, or the save failed.
// no_mirror: no mirror has told anything about this run directory, or this is a rank that does not commit.
enum class HomeStatus { home, away, no_mirror };

class HOLDFAST_EXPORT SaveHandle {
 public:
  SaveHandle() = default;  // no save: status failed, error "no save"

  std::int64_t step() const;
  SaveStatus status() const;
  // Blocks while the status is `staging`.
  SaveStatus wait_staged() const;
  // Blocks until durable, overtaken or failed. On a rank that learns the result from rank 0, the
  // training thread returns at once with the current status.
  SaveStatus wait() const;
  // nullopt if it is still staging or being written after `limit`.
  std::optional<SaveStatus> wait_for(std::chrono::nanoseconds limit) const;
  // Blocks until the status is `home`, for `limit` at most. Returns earlier if the save fails, if it is
  // durable and there is no mirror, or if the Checkpointer has been destroyed.
  HomeStatus wait_home(std::chrono::nanoseconds limit) const;
  std::string error() const;       // one line; empty unless failed
  std::string checkpoint() const;  // file name; empty unless durable
  SaveFigures figures() const;     // as far as known

  struct Shared;  // the writer's side
  explicit SaveHandle(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

 private:
  std::shared_ptr<Shared> shared_;
};

// A save has reached `status`, which is never `staging`. The texts are valid during the call.
struct SaveEvent {
  SaveStatus status = SaveStatus::failed;
  std::int64_t step = 0;
  std::string_view checkpoint = {};  // file name; empty unless durable
  std::string_view error = {};       // one line; empty unless failed
  SaveFigures figures = {};          // as far as known
};
using OnSave = std::function<void(const SaveEvent&)>;

}}  // namespace holdfast::v0_2
