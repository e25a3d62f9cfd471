// The exit codes of every Holdfast program, and what signals do to a training: the one table from which
// `holdfast help exit-codes` prints and against which tests/docs compares the pages.
//
// Launchers and wrappers decide by the codes, so a value never changes its meaning. Values that sysexits.h
// defines keep its numbers. Errors: none. Threads: any.
#pragma once

#include <span>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class ExitCode : int {
  complete = 0,      // the run reached its final step; its last commit is acknowledged
  difference = 1,    // tools only: a difference, damage, a run that needs a look
  unreadable = 2,    // tools only: a file could not be read, or is of a newer format
  not_running = 3,   // tools only: `health` found no training process
  usage = 64,        // wrong options, environment or use of the library; no checkpoint was touched
  internal = 70,     // a defect in Holdfast or in the user's own code
  io_failed = 74,    // the run's own last save failed, or the volume cannot be read; older checkpoints stand
  interrupted = 75,  // paused safely: everything acknowledged stands, start again to resume
  superseded = 76,   // a newer attempt owns the run directory; never restart this one
  refused = 78,      // resume refused; a blind retry would refuse again or lose work
  forced = 130,      // second Ctrl-C
};

// One row of the tables for people, in the order of the codes.
struct ExitCodeRow {
  ExitCode code;
  const char* meaning;
  const char* again;  // "start again?": empty for codes of tools alone
};
HOLDFAST_EXPORT std::span<const ExitCodeRow> exit_code_rows();

struct SignalRow {
  const char* signals;  // "SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU"
  const char* effect;
  const char* code;  // the exit code as text; empty: training goes on
};
HOLDFAST_EXPORT std::span<const SignalRow> signal_rows();

}}  // namespace holdfast::v0_2
