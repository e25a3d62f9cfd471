// Identifies this machine for people who read claims, run states and checkpoints. No decision depends on it.
//
// Errors: none; an unknown value is empty. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

HOLDFAST_EXPORT std::string host_name();
std::string boot_id();                                  // differs after every boot
HOLDFAST_EXPORT std::optional<Duration> process_age();  // time since the process started, to 10 ms

// The age of this program, without the time of a script that became this program by `exec`. If the process
// had child processes before this library was loaded, the age counts from that load.
std::optional<Duration> program_age();

}}  // namespace holdfast::v0_2
