// The options of `holdfast supervise`, for it and for the commands that become it (`sweep`).
//
// Errors: UsageError for options that need others. Threads: call run_supervise() before others start.
#pragma once

#include "holdfast/cli/supervise/supervisor.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

// All but --directory. `request` must outlive the parse.
void add_supervise_options(CLI::App& command, SuperviseRequest& request);
// The check of an option that protects: an empty value, as of a variable that is not set, is a mistake.
std::string refuse_empty(const std::string& value);
// Returns the exit code of the program.
int run_supervise(const SuperviseRequest& request);

}}  // namespace holdfast::v0_2
