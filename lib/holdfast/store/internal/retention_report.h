// A retention plan for people: every name in the run directory except the store's own small files.
//
// Errors: IoError. Threads: any.
#pragma once

#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/internal/retention_planner.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `own`: the attempt whose temporary files are in use; 0: none.
RetentionReport report_of(const Directory& run, AttemptNumber own, const RetentionPlanner::Plan& plan,
                          const Selection& selection);

}}}  // namespace holdfast::v0_2::internal
