// The commands of the program `holdfast`, one source file each in commands/. No command changes a checkpoint.
// `prune` deletes some by the rules of retention; `mirror` and `fetch` copy them; `export`, `import` and
// `probe` write new files.
//
// add_<command> describes the options to CLI11. If the user chooses the command, it stores the function to
// run in `chosen`. That function prints the result to standard output and returns the exit code.
// Errors: UsageError; the function throws Error. Threads: one; `verify` starts its own and joins them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

using Command = std::function<int()>;

void add_ls(CLI::App& app, Command& chosen);
void add_show(CLI::App& app, Command& chosen);
void add_verify(CLI::App& app, Command& chosen);
void add_diff(CLI::App& app, Command& chosen);
void add_export(CLI::App& app, Command& chosen);
void add_import(CLI::App& app, Command& chosen);
void add_prune(CLI::App& app, Command& chosen);
void add_mirror(CLI::App& app, Command& chosen);
void add_fetch(CLI::App& app, Command& chosen);
void add_takeover(CLI::App& app, Command& chosen);
void add_report(CLI::App& app, Command& chosen);
void add_status(CLI::App& app, Command& chosen);
void add_health(CLI::App& app, Command& chosen);
void add_help(CLI::App& app, Command& chosen);
void add_completion(CLI::App& app, Command& chosen);
void add_probe(CLI::App& app, Command& chosen);
void add_doctor(CLI::App& app, Command& chosen);
// `wrapped`: the command after `--`, unchanged.
void add_supervise(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_rehearse(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_check(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_launch(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);
void add_sweep(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen);

// The whole program: parses, runs, and prints every exception as one line on standard error.
int run_program(std::vector<std::string> arguments);

}}  // namespace holdfast::v0_2
