// Times that several commands need. Errors: UsageError. Threads: any.
#pragma once

#include <string>

#include "holdfast/base/clock.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

// From SIGTERM to SIGKILL: the trainer's grace (HOLDFAST_TERM_GRACE) plus 5 s for processes that it leaves
// behind. With the default that is what most orchestrators give.
Duration time_to_leave();
// The grace, but at least 2 min if nobody named it: a slow disk may need them, and a person or service that
// stops the run has a limit of its own.
Duration longest_time_to_leave();

// Adds an option that takes a time; --help shows its default.
void add_time(CLI::App& command, const char* name, std::string& value, const std::string& help);
// Parses the value of an option. Throws UsageError with the option's name for a malformed time.
Duration duration_of(const std::string& option, const std::string& text);

std::string share_text(Duration part, Duration whole);  // "12.3 %"

}}  // namespace holdfast::v0_2
