// What a Trainer asks of its loaders before the first step, so that no run ends with its first epoch.
//
// Errors: UsageError, which names the option to set. Threads: pure functions.
#pragma once

#include "holdfast/data/loader.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `group`: the ranks that train together; null: this process alone. `steps`: the final step of the run.
void check_training_data(const Loader& loader, const ProcessGroup* group, std::int64_t steps);
void check_test_data(const Loader& loader, const ProcessGroup* group);

}}}  // namespace holdfast::v0_2::internal
