// Runs a user's command at the end of a supervised run, such as one that cancels the fleet, and repeats it
// until it succeeds: a cloud's control plane fails now and then, and each hour costs money. The command gets
// the context of base/hook_context.h.
//
// Signals are forwarded to the command; after SIGTERM or SIGINT nothing is repeated. A command that still
// runs at the limit is killed.
//
// Errors: none. Threads: the one that made the inbox.
#pragma once

#include <string>

#include "holdfast/base/hook_context.h"
#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {

struct EndHookOptions {
  Duration limit = std::chrono::minutes(30);         // for all tries together; longer than most outages
  Duration first_delay = std::chrono::seconds(1);    // doubled after each try
  Duration longest_delay = std::chrono::minutes(1);  // keeps the load on a failing service low
};

// True if a try ended with 0. Logs failures; `context.hook` names the hook in messages.
bool run_end_hook(const std::string& command, const HookContext& context, const EndHookOptions& options,
                  SignalInbox& inbox);

}}  // namespace holdfast::v0_2
