// Times that several commands need. Threads: any.
#pragma once

#include <string>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// From SIGTERM to SIGKILL: the trainer's own grace (HOLDFAST_TERM_GRACE) and 5 s for what it leaves behind,
// together what most orchestrators give.
Duration time_to_leave();

// What the user wrote for an option. Throws UsageError, which names the option, for what is no time.
Duration duration_of(const std::string& option, const std::string& text);

}  // namespace holdfast::inline v1
