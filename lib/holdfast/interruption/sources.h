// Makes the sources that a process listens to, from options, the environment and the machine.
//
//   for (auto& source : make_sources({.notice_files = {"/run/notice"}}, clock))
//   monitor.add(std::move(source));
//
// Default: signal, file (each notice file), deadline (if max_wall or a Slurm job's end exists) and cloud.
// HOLDFAST_SOURCES selects by name, and signals are heard in any case. With several ranks only one process of
// each host asks the provider. docs/interruption_sources.md has the rules.
//
// Errors: UsageError for a malformed variable; for an unknown name the message lists all names.
// Threads: reads the environment (base/env.h). Opens no connection, and reads no file of a provider.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/env.h"
#include "holdfast/base/export.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

struct SourceOptions {
  bool signals = true;                      // off: the program handles signals itself
  std::optional<Duration> term_grace = {};  // unset: term_grace.h
  std::vector<std::filesystem::path> notice_files = {};
  // The process ends by itself (exit code 75) this long after its start; under `holdfast supervise`, after
  // the supervisor's start. Unset: no limit.
  std::optional<Duration> max_wall = {};
  // Looks which provider's machine this is. Cost: one thread.
  bool cloud = true;
  // Azure only: polled while the machine's end is announced; true tells Azure that the machine may go now
  // (azure_source.h).
  std::function<bool()> azure_approve = {};
  Duration blind_after = kBlindAfter;  // blind time before the warning
  // For tests: the root for sys/class/dmi/id, sys/hypervisor and a container's marks.
  std::filesystem::path system_root = "/";
};

// The sources without which a start is refused (required_sight.h): the program's, which may name its own
// sources, and those of HOLDFAST_REQUIRE_SOURCE. Without the providers if another process of this host asks
// them.
HOLDFAST_EXPORT std::vector<std::string> required_sources(const std::vector<std::string>& by_program);

// The variables of the providers' own tools that make_sources() reads, beside env_variables().
HOLDFAST_EXPORT std::vector<EnvVariable> source_variables();

HOLDFAST_EXPORT std::vector<std::unique_ptr<Source>> make_sources(const SourceOptions& options,
                                                                  Clock& clock = Clock::real());

}}  // namespace holdfast::v0_2
