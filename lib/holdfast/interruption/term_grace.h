// How long a process may live after SIGTERM.
//
// HOLDFAST_TERM_GRACE has priority over the program's own setting. If neither names a time, the time is a
// guess: 10 s in a container, 25 s elsewhere. Under torchrun, which kills its processes, it is at most 25 s.
// docs/interruptions.md#grace-period lists what platforms give.
//
// Errors: UsageError for a malformed HOLDFAST_TERM_GRACE. Threads: reads the environment (base/env.h).
#pragma once

#include <filesystem>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Most platforms kill 30 s or more after SIGTERM; the difference is for the process's own exit.
inline constexpr Duration kDefaultTermGrace = std::chrono::seconds(25);
// docker stop and podman stop kill after this time.
inline constexpr Duration kContainerTermGrace = std::chrono::seconds(10);

struct TermGrace {
  Duration time = kDefaultTermGrace;
  bool guessed = true;  // neither the environment nor the program named it
  bool cut = false;     // more was named than torchrun gives
};

// `system_root`: for tests; the root for .dockerenv, run/.containerenv and proc/1/cgroup.
HOLDFAST_EXPORT TermGrace term_grace(std::optional<Duration> by_program = {},
                                     const std::filesystem::path& system_root = "/");

// True in Docker, Podman, Kubernetes, containerd and LXC, by marks in the file system or
// KUBERNETES_SERVICE_HOST.
HOLDFAST_EXPORT bool in_a_container(const std::filesystem::path& system_root = "/");

}}  // namespace holdfast::v0_2
