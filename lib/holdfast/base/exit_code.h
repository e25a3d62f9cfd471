// The exit codes of every Holdfast program. Launchers and wrappers decide by them, so a value never changes
// its meaning. Values that sysexits.h defines keep its numbers.
#pragma once

namespace holdfast { inline namespace v1 {

enum class ExitCode : int {
  complete = 0,      // the run reached its final step; its last commit is acknowledged
  difference = 1,    // tools only: `diff` found a difference, `verify` damage, `health` a blind source
  unreadable = 2,    // tools only: a file could not be read, or is of a newer format
  not_running = 3,   // tools only: `health` found no training process
  usage = 64,        // unknown or contradictory options; nothing was touched
  internal = 70,     // a defect in Holdfast or in the user's own code
  io_failed = 74,    // the run's own last save failed, or the volume cannot be read; older checkpoints stand
  interrupted = 75,  // paused safely: everything acknowledged stands, start again to resume
  superseded = 76,   // a newer attempt owns the run directory; never restart this one
  refused = 78,      // resume refused; a blind retry would refuse again or lose work
  forced = 130,      // second Ctrl-C
};

}}  // namespace holdfast::v1
