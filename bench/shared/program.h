// Shared by the benches' programs: exit codes, and figures as a file.
//
// Threads: any.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast::bench {

// Returns the exit code that `work` returns. Prints an error as one line on standard error, after the
// program's name.
template <class Work>
int ended_by(const char* program, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

// False: --help was asked for, and printed. Throws UsageError for wrong arguments.
inline bool parsed(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (see --help)");
  }
}

// Writes the file of the option --output.
inline void write_figures(const std::string& output, const nlohmann::ordered_json& all) {
  std::ofstream file(output, std::ios::trunc);
  file << all.dump(1) << "\n";
  file.close();
  if (!file) throw Error("cannot write " + output + " (--output)", ExitCode::io_failed);
}

}  // namespace holdfast::bench
