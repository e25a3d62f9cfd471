// What a checkpoint records about its own making, beside the training state. These attributes have
// Role::record: a resume does not compare them (except environment.*), and `state=` does not include them.
// Their names are in files, so they never change.
//
// Requires: a training state names no attribute "run.…"; these would replace it.
// Errors: run_record_of throws RefusedError, which names an attribute that is missing or of another type: a
// Checkpointer did not write the file.
// Threads: plain values, free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/snapshot/attributes.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr char kRunAttempt[] = "run.attempt";    // int: the attempt that wrote it
inline constexpr char kRunAncestry[] = "run.ancestry";  // ints: attempt, step, attempt, step, …
inline constexpr char kRunLoss[] = "run.loss";          // double: of this step
// bool: true if a NaN in run.loss is a measured NaN; otherwise NaN means that the program did not report this
// step's loss. Older files say true once any step's loss was reported.
inline constexpr char kRunLossTold[] = "run.loss_told";
inline constexpr char kRunFinite[] = "run.finite";  // bool: loss and tensors (snapshot/finite.h)
inline constexpr char kRunEvaluationDue[] = "run.evaluation_due";  // bool: this step is not evaluated yet
// bool, only if true: finish() staged the state from memory, and the program may have changed it since its
// last after_step().
inline constexpr char kRunAfterLoop[] = "run.after_loop";
inline constexpr char kRunOverrides[] = "run.overrides";   // strings: options changed at a resume
inline constexpr char kRunGrownFrom[] = "run.grown_from";  // string: the file it started from
// strings: the starting points that resume_from chose in this history, oldest first (store/branch.h); absent:
// none
inline constexpr char kRunBranches[] = "run.branches";
inline constexpr char kRunTime[] = "run.time";  // string: when the state was staged, UTC
inline constexpr char kRunHost[] = "run.host";  // string
// Three lists of equal length, absent if nothing was measured: names of metrics, their steps, their values.
inline constexpr char kRunMetrics[] = "run.metrics";             // strings
inline constexpr char kRunMetricSteps[] = "run.metric_steps";    // ints
inline constexpr char kRunMetricValues[] = "run.metric_values";  // doubles
// The training state sets these: library versions, device, threads, flags. A difference at a resume withdraws
// the bit-exact promise.
inline constexpr char kEnvironmentPrefix[] = "environment.";

// int: number of ranks; absent: one. The Checkpointer sets it, because the training state does not know it.
inline constexpr char kWorldSize[] = "environment.world_size";

struct RunRecord {
  AttemptNumber attempt = 0;
  int world_size = 1;
  Ancestry ancestry;
  std::optional<double> loss;  // unset: not reported
  bool finite = true;
  bool evaluation_due = false;
  bool after_loop = false;
  std::vector<std::string> overrides;
  std::string grown_from;  // empty: a fresh start
  Branches branches = {};
  std::string time;
  std::string host;
  Metrics metrics;  // measured before the state was staged, without the loss
};

// Overrides, file name and host may be any bytes; bytes that are not UTF-8 are recorded as "\\xNN".
void put_run_record(Attributes& attributes, const RunRecord& record);
RunRecord run_record_of(const Attributes& attributes);

// The ancestry of an attempt that starts from that checkpoint: the recorded one plus {its attempt: its step}.
Ancestry grown_from(const RunRecord& record, std::int64_t step);

// "environment.threads: 4 → 8" for each difference, in order of name, without the world size.
std::vector<std::string> environment_differences(const Attributes& recorded, const Attributes& now);

}}  // namespace holdfast::v0_2
