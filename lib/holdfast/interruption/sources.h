// Which sources a process listens to: made from a few options, what the environment says, and where the
// process runs.
//
//   for (auto& source : make_sources({.notice_files = {"/run/notice"}}, clock))
//   monitor.add(std::move(source));
//
// By default:
//   signal    SIGTERM, SIGINT, SIGUSR1 (signal_source.h)
//   file      each notice file of the options, and HOLDFAST_NOTICE_FILE (file_source.h)
//   deadline  max_wall and SLURM_JOB_END_TIME, where there is one of them (deadline_source.h)
//   cloud     EC2, Google or Azure, found out on the source's own thread from what this machine knows of
//             itself; no packet leaves a machine that is none of theirs (cloud_source.h)
// HOLDFAST_SOURCES picks: a list such as `ec2,signal` of the names signal, file, deadline, cloud, ec2, gcp,
// azure. A provider's own name is believed without a look at the machine. What is not on the list is off,
// whatever the options say; what is on it and has nothing to do (file without a file) makes no source.
//
// One process on each host asks its provider: where LOCAL_RANK (torchrun's, mpirun's and srun's variables of
// that meaning count as well) is not 0, there is no cloud source, also when HOLDFAST_SOURCES names one. The
// others hear it from their partner.
//
// Errors: UsageError for a variable that cannot be understood; one for an unknown name lists those there are.
// Threads: reads the environment (base/env.h). Opens no connection and reads no file of a provider.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

struct SourceOptions {
  bool signals = true;
  Duration term_grace = kDefaultTermGrace;
  std::vector<std::filesystem::path> notice_files = {};
  // The process is to have ended by itself (exit code 75) that long after its start.
  std::optional<Duration> max_wall = {};
  // EC2, Google and Azure: looked for on this machine.
  bool cloud = true;
  // For tests: where sys/class/dmi/id and sys/hypervisor are looked for.
  std::filesystem::path system_root = "/";
};

std::vector<std::unique_ptr<Source>> make_sources(const SourceOptions& options, Clock& clock = Clock::real());

}  // namespace holdfast::inline v1
