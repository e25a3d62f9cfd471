// What a run measured on its states (test accuracy, validation loss), and the part of it that a checkpoint
// records.
//
// An evaluation follows the step that it belongs to, and that step's save may be committed by then; a
// committed file never changes. So every checkpoint records, for each metric, the newest value with the step
// it was measured at, and the values of earlier steps that were saved: retention finds the value of a file in
// the file itself or in a later one. Of a value whose step was never saved nothing is left once a newer one
// is there, and of more than 64 values of a metric the extreme ones (16 least, 16 greatest) and the newest
// stay.
//
// Errors: add() throws UsageError. Threads: a plain value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/store/retention.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v1 {

class Measurements {
 public:
  Measurements() = default;
  // Those of the checkpoint that a run begins with.
  explicit Measurements(Metrics recorded) : values_(std::move(recorded)) {}

  // Requires a name as is_metric_name says, other than "loss"; 16 names at most.
  void add(const std::string& name, std::int64_t step, double value);
  // The state at that step is being saved: its values are worth keeping. With the save itself: until that
  // comes to nothing.
  void saved(std::int64_t step);
  void saved_by(std::shared_ptr<SaveHandle::Shared> save);
  // Looks what became of those saves. A save that failed, or that a newer one overtook, left no file: its
  // values are of no checkpoint.
  void settle();
  // That save came to nothing: its values are dropped, the newest one of a metric with the next value.
  void not_saved(std::int64_t step);

  const Metrics& recorded() const { return values_; }
  // The value at `step` belongs to the `count` best known ones. Ties with the worst of them do not.
  bool among_best(const KeepBest& policy, std::int64_t step) const;

 private:
  Metrics values_;
  std::map<std::string, std::int64_t> unsaved_;  // the step of a metric's newest value
  std::optional<std::int64_t> last_saved_;
  std::vector<std::shared_ptr<SaveHandle::Shared>> open_;  // saves that may still come to nothing
};

}}  // namespace holdfast::v1
