// Ends a start that cannot see a required source, before it claims anything.
//
//   HOLDFAST_REQUIRE_SOURCE=ec2        or CheckpointerOptions::notices.require_sources
//
// A source that does not block can see as soon as it exists. Any other source can see after one good poll,
// and await_sight() waits for that. "cloud" means the provider that this machine has.
//
// Errors, each with reason and remedy: RefusedError (78) if no start here can ever see: no such source, it is
// switched off, or the firmware names no provider. Error with ExitCode::interrupted (75) if the service
// fails, refuses (403) or is silent for longer than `patience`: a later start may see.
// Threads: any but the Monitor's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "holdfast/interruption/monitor.h"

namespace holdfast { inline namespace v0_2 {

struct SightPatience {
  Duration retries = std::chrono::seconds(30);      // a service that fails or refuses may just be starting
  Duration first_poll = std::chrono::seconds(150);  // Azure's first answer may take two minutes
};

// Requires a started Monitor. Calls `go_on` between looks; if that returns false, this returns at once.
void await_sight(const Monitor& monitor, const std::vector<std::string>& required,
                 const std::function<bool()>& go_on, const SightPatience& patience = {});

}}  // namespace holdfast::v0_2
