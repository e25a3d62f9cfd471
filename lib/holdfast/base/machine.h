// Which machine this is, for people who read claims, run states and checkpoints. Decides nothing.
//
// Errors: none; what cannot be found out is empty. Threads: any.
#pragma once

#include <string>

namespace holdfast::inline v1 {

std::string host_name();
std::string boot_id();  // changes with every start of the machine

}  // namespace holdfast::inline v1
