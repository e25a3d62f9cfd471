#include "holdfast/base/exit_code.h"

#include <array>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::array kCodes{
    ExitCodeRow{ExitCode::complete, "complete", "no"},
    ExitCodeRow{ExitCode::difference, "a tool found a difference, damage, a blind source or a run in trouble",
                ""},
    ExitCodeRow{ExitCode::unreadable, "a tool could not read something, or its format is newer", ""},
    ExitCodeRow{ExitCode::not_running, "`holdfast health`: nobody trains there", ""},
    ExitCodeRow{ExitCode::usage,
                "wrong options, environment or use of the library; no checkpoint was touched",
                "after correcting them"},
    ExitCodeRow{ExitCode::internal, "a defect, in Holdfast or in the program", "after correcting it"},
    ExitCodeRow{ExitCode::io_failed,
                "the last save failed, or the volume cannot be read; older checkpoints stand",
                "yes, with delays"},
    ExitCodeRow{ExitCode::interrupted, "interrupted; everything acknowledged stands", "yes"},
    ExitCodeRow{ExitCode::superseded, "a newer attempt owns the run directory", "never"},
    ExitCodeRow{ExitCode::refused, "resume refused; a repeated start would be refused again",
                "after a person decided"},
    ExitCodeRow{ExitCode::forced, "second Ctrl-C", "as you like"},
};

// 130 and 137 are 128 plus the signal's number: shells and container runtimes report a death by a signal this
// way.
constexpr std::array kSignals{
    SignalRow{"SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU",
              "finishes the step, commits, ends within the grace period", "75"},
    SignalRow{"SIGUSR1", "commits and continues", ""},
    SignalRow{"a second Ctrl-C", "ends at once", "130"},
    SignalRow{"SIGKILL", "ends at once; the next start takes the newest checkpoint that verifies", "137"},
};

}  // namespace

std::span<const ExitCodeRow> exit_code_rows() { return kCodes; }
std::span<const SignalRow> signal_rows() { return kSignals; }

}}  // namespace holdfast::v0_2
