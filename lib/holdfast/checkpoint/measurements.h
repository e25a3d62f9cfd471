// What a run measured on its states (test accuracy, validation loss), and the part of it that a checkpoint
// records.
//
// A value may be measured after its step was committed, and a committed file never changes. So every
// checkpoint records, for each metric, the newest value with its step, and the values of earlier saved steps:
// retention finds a file's value in that file or in a later one. A value whose step was never saved is
// dropped when a newer one arrives. Of more than 64 values of a metric, the 16 least, the 16 greatest and the
// newest stay.
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

namespace holdfast { inline namespace v0_2 {

class Measurements {
 public:
  Measurements() = default;
  // Reads those of the checkpoint from which the run starts.
  explicit Measurements(Metrics recorded) : values_(std::move(recorded)) {}

  // Requires is_metric_name(name) and another name than "loss"; at most 16 names.
  void add(const std::string& name, std::int64_t step, double value);
  // The state at that step is being saved, so its values are kept. With `save`: unless that save fails or is
  // overtaken.
  void saved(std::int64_t step);
  void saved_by(std::shared_ptr<SaveHandle::Shared> save);
  // Looks at the outcome of those saves. A failed or overtaken save left no file, so its values belong to no
  // checkpoint.
  void settle();
  // That save left no file: drops its values. A metric's newest value stays until the next one.
  void not_saved(std::int64_t step);

  const Metrics& recorded() const { return values_; }
  // The value at `step` belongs to the `count` best known ones. Ties with the worst of them do not.
  bool among_best(const KeepBest& policy, std::int64_t step) const;

 private:
  Metrics values_;
  std::map<std::string, std::int64_t> unsaved_;  // the step of a metric's newest value
  std::optional<std::int64_t> last_saved_;
  std::vector<std::shared_ptr<SaveHandle::Shared>> open_;  // saves whose outcome is open
};

}}  // namespace holdfast::v0_2
