// Which machine this is, for people who read claims, run states and checkpoints. Decides nothing.
//
// Errors: none; what cannot be found out is empty. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

std::string host_name();
std::string boot_id();                  // changes with every start of the machine
std::optional<Duration> process_age();  // since this process was started, to a hundredth of a second

}  // namespace holdfast::inline v1
