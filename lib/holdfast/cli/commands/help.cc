#include <CLI/CLI.hpp>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/output/table.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr char kExitCodes[] = "exit-codes";

// From the tables that the pages in docs/ are compared with, so that the program and the pages say the same.
int print_exit_codes() {
  using enum Table::Align;
  Table codes({right, left, left});
  codes.add({"CODE", "MEANING", "START AGAIN?"});
  for (const ExitCodeRow& row : exit_code_rows()) {
    codes.add({std::to_string(static_cast<int>(row.code)), row.meaning, row.again});
  }
  codes.print(std::cout);
  Table signals({left, left, left});
  signals.add({"SIGNAL", "WHAT A TRAINING DOES", "EXIT CODE"});
  for (const SignalRow& row : signal_rows()) signals.add({row.signals, row.effect, row.code});
  std::cout << '\n';
  signals.print(std::cout);
  std::cout << "\n128 + N: a program ended by signal N. --exit-code-interrupted replaces 75.\n";
  return 0;
}

int print_help(const CLI::App& app, const std::string& topic) {
  if (topic == kExitCodes) return print_exit_codes();
  const auto commands =
      app.get_subcommands([&](const CLI::App* command) { return command->check_name(topic); });
  if (commands.empty())
    throw UsageError("there is no command '" + printable(topic) + "' (holdfast --help lists them)");
  // With the program's name in front, as `holdfast COMMAND --help` prints it.
  std::cout << commands.front()->help(app.get_name());
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Command& chosen) {
  const auto topic = std::make_shared<std::string>();
  CLI::App* const command =
      app.add_subcommand("help", "Show the help of a command, or the table of exit codes and signals");
  command->add_option("TOPIC", *topic, "a command, or exit-codes; without: all commands");
  command->footer("Example:\n  holdfast help exit-codes");
  command->callback([topic, &app, &chosen] { chosen = [topic, &app] { return print_help(app, *topic); }; });
}

}}  // namespace holdfast::v0_2
