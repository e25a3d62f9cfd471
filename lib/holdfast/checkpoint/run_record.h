// What a checkpoint records about its own making, beside the training state: attributes with Role::record, so
// none of it is compared on resume (except environment.*) or digested into `state=`. The names are frozen:
// they are in files.
//
// Requires: a training state names no attribute "run.…"; these replace it.
// Errors: run_record_of throws RefusedError naming the attribute that is missing or of another type (the file
// was not written by a Checkpointer).
// Threads: plain values, free functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "holdfast/snapshot/attributes.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

inline constexpr char kRunAttempt[] = "run.attempt";               // int: who wrote it
inline constexpr char kRunAncestry[] = "run.ancestry";             // ints: attempt, step, attempt, step, …
inline constexpr char kRunLoss[] = "run.loss";                     // double: of this step; NaN: not told
inline constexpr char kRunLossTold[] = "run.loss_told";            // bool: ever; a NaN then means NaN
inline constexpr char kRunFinite[] = "run.finite";                 // bool: loss and all tensors
inline constexpr char kRunEvaluationDue[] = "run.evaluation_due";  // bool: not evaluated at this step yet
inline constexpr char kRunOverrides[] = "run.overrides";           // strings: options changed on some resume
inline constexpr char kRunGrownFrom[] = "run.grown_from";          // string: the file this attempt began with
inline constexpr char kRunTime[] = "run.time";                     // string: when it was staged, UTC
inline constexpr char kRunHost[] = "run.host";                     // string
// Three lists of one length, absent when nothing was measured: what was measured at which step, and the
// value.
inline constexpr char kRunMetrics[] = "run.metrics";             // strings
inline constexpr char kRunMetricSteps[] = "run.metric_steps";    // ints
inline constexpr char kRunMetricValues[] = "run.metric_values";  // doubles
// Set by the training state: library versions, device, threads, flags. A difference on resume withdraws the
// bit-exact promise.
inline constexpr char kEnvironmentPrefix[] = "environment.";

// int: ranks that train together; absent: one. Known to the Checkpointer, not to the training state.
inline constexpr char kWorldSize[] = "environment.world_size";

struct RunRecord {
  AttemptNumber attempt = 0;
  int world_size = 1;
  Ancestry ancestry;
  double loss = std::numeric_limits<double>::quiet_NaN();
  bool loss_told = false;
  bool finite = true;
  bool evaluation_due = false;
  std::vector<std::string> overrides;
  std::string grown_from;  // empty: a fresh start
  std::string time;
  std::string host;
  Metrics metrics;  // as far as they were measured when the state was staged; without the loss
};

void put_run_record(Attributes& attributes, const RunRecord& record);
RunRecord run_record_of(const Attributes& attributes);

// The history of an attempt that begins with that checkpoint: its ancestry and {its attempt: its step}.
Ancestry grown_from(const RunRecord& record, std::int64_t step);

// "environment.threads: 4 → 8" for every difference, in order of name; without the world size.
std::vector<std::string> environment_differences(const Attributes& recorded, const Attributes& now);

}  // namespace holdfast::inline v1
