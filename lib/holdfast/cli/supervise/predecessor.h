// Finds a trainer that outlived its supervisor. After `kill -9` of `holdfast supervise`, a service manager
// starts the supervisor again at once, while the old trainer may still train or commit. A new attempt would
// fence it off and lose its work, so the new supervisor ends it first, in order.
//
// Only a process that is identified with certainty gets a signal: its claim names this boot of this machine,
// our PID namespace, its process number and start time, and a supervisor that no longer runs. A trainer with
// a living supervisor, or with none, is left alone.
//
// Errors: none. Threads: one.
#pragma once

#include <optional>

#include "holdfast/cli/run/run_news.h"

namespace holdfast { inline namespace v0_2 {

// nullopt if there is no such trainer.
std::optional<ProcessIdentity> orphaned_trainer(const RunNews& news);

// A name for HOLDFAST_SUPERVISOR: this process, and a random number.
std::string new_supervisor_name();

}}  // namespace holdfast::v0_2
