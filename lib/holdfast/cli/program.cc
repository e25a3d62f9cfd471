#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/version.h"

namespace holdfast { inline namespace v0_2 {
namespace {

int code_of(ExitCode code) { return static_cast<int>(code); }

// Whoever asks for JSON reads standard output, in an error case too.
class Failure {
 public:
  explicit Failure(bool json) : json_(json) {}

  int operator()(const std::string& message, ExitCode code) const {
    clear_status_line();
    if (json_) print_json_error(message, code_of(code));
    // Both streams often show in one place: the message comes last.
    std::cout.flush();
    log_error(message);
    return code_of(code);
  }

 private:
  const bool json_;
};

// Some codes tell a wrapper what to do with a run. From a tool they all mean that a file could not be read.
ExitCode tool_code(ExitCode code) {
  const bool run_code =
      code == ExitCode::io_failed || code == ExitCode::refused || code == ExitCode::superseded;
  return run_code ? ExitCode::unreadable : code;
}

// A command that runs another one, and logs beside it. The others answer and end.
bool is_wrapper(const std::string& command) {
  return command == "supervise" || command == "rehearse" || command == "check" || command == "launch" ||
         command == "sweep";
}

// Its lines need the time: it runs beside a training.
bool logs_for_long(const std::string& command) { return is_wrapper(command) || command == "mirror"; }

// A run depends on it, and its log is not its result: it goes on when the reader of its log has ended.
bool outlives_its_reader(const std::string& command) { return logs_for_long(command) || command == "fetch"; }

// From here on a write without a reader is an error and no end. By a handler, and not ignored: exec keeps an
// ignored signal ignored, so every command started from here would inherit that. A handler becomes the
// default again.
void survive_broken_pipes() {
  struct sigaction pipe {};
  if (sigaction(SIGPIPE, nullptr, &pipe) != 0 || pipe.sa_handler != SIG_DFL) return;
  pipe.sa_handler = [](int) {};
  pipe.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &pipe, nullptr);
}

// Takes the words after `--` of a command that runs another program. CLI11 must not see them, because it
// would split an argument such as [1,2].
std::vector<std::string> take_wrapped(std::vector<std::string>& arguments) {
  if (arguments.empty() || !is_wrapper(arguments.front())) return {};
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) return {};
  std::vector<std::string> wrapped(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return wrapped;
}

// A failed write (a full disk, a closed pipe) must not end with 0: the reader would take half a result for
// all of it.
int finish(int code, const Failure& fail) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0) return code;
  return fail("cannot write to standard output", ExitCode::unreadable);
}

}  // namespace

int run_program(std::vector<std::string> arguments) {
  CLI::App app{
      "Lists, shows, verifies, compares, exports and deletes Holdfast checkpoints; it never changes one.\n"
      "Runs trainers: one process for each GPU, restarted after interruptions, with interruptions "
      "rehearsed."};
  app.name("holdfast");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.footer(
      "Example:\n  holdfast ls /mnt/ckpt/run1\n\n`holdfast help COMMAND` has an example of each command.");
  Command chosen;
  // CLI11 would print the help of the command `help`.
  if (arguments.size() == 1 && arguments.front() == "help") arguments = {"--help"};
  const std::vector<std::string> wrapped = take_wrapped(arguments);
  // Before the parse, because that may fail. The words behind `--` are another program's, and taken out
  // already.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  const Failure fail(json);
  const std::string first = arguments.empty() ? std::string() : arguments.front();
  add_ls(app, chosen);
  add_show(app, chosen);
  add_verify(app, chosen);
  add_diff(app, chosen);
  add_export(app, chosen);
  add_import(app, chosen);
  add_prune(app, chosen);
  add_mirror(app, chosen);
  add_fetch(app, chosen);
  add_takeover(app, chosen);
  add_report(app, chosen);
  add_status(app, chosen);
  add_health(app, chosen);
  add_probe(app, chosen);
  add_doctor(app, chosen);
  add_supervise(app, wrapped, chosen);
  add_rehearse(app, wrapped, chosen);
  add_check(app, wrapped, chosen);
  add_launch(app, wrapped, chosen);
  add_sweep(app, wrapped, chosen);
  add_completion(app, chosen);
  add_help(app, chosen);

  // Checked here, because CLI11 would only say that a command is required.
  std::string unknown;
  if (!arguments.empty() && !arguments.front().starts_with('-')) {
    const auto commands =
        app.get_subcommands([&](const CLI::App* command) { return command->check_name(arguments.front()); });
    if (commands.empty()) unknown = arguments.front();
  }

  try {
    configure_log();
    show_log_times(logs_for_long(first));
    if (outlives_its_reader(first)) survive_broken_pipes();
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them in reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error, std::cout, std::cerr);
      return finish(0, fail);
    }
    const std::string what =
        unknown.empty() ? error.what() : "there is no command '" + printable(unknown) + "'";
    return fail(what + " (holdfast --help lists the commands)", ExitCode::usage);
  } catch (const Error& error) {
    return fail(error.what(), error.exit_code());
  }

  try {
    return finish(chosen(), fail);
  } catch (const Error& error) {
    return fail(error.what(), tool_code(error.exit_code()));
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ExitCode::unreadable);
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::internal);
  }
}

}}  // namespace holdfast::v0_2
