// The commands of the `holdfast` program, one source file each. None of them ever changes a checkpoint:
// `prune` deletes some as retention does, `export` and `probe` write files of their own.
//
// add_<command> describes its options to CLI11 and, when the user chooses it, puts what is to be run into
// `chosen`. That returns the exit code, prints its result to standard output, and throws Error for what ends
// it. Threads: one; `verify` starts its own and is gone with them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast::inline v1 {

using Command = std::function<int()>;

void add_ls(CLI::App& app, Command& chosen);
void add_show(CLI::App& app, Command& chosen);
void add_verify(CLI::App& app, Command& chosen);
void add_diff(CLI::App& app, Command& chosen);
void add_export(CLI::App& app, Command& chosen);
void add_prune(CLI::App& app, Command& chosen);
void add_report(CLI::App& app, Command& chosen);
void add_probe(CLI::App& app, Command& chosen);
// `wrapped`: the command after `--`, untouched.
void add_supervise(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_rehearse(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_launch(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);

// The whole program: parses, runs, and turns every exception into one line on standard error.
int run_program(std::vector<std::string> arguments);

}  // namespace holdfast::inline v1
