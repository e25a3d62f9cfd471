// `--json` of the commands: one JSON object on standard output and nothing else there, in error cases too.
// docs/status_and_logs.md describes the members.
//
// Errors: none. Threads: one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

// The `schema` of every command but `status`. It rises when a member changes its meaning or goes; new members
// do not count.
inline constexpr int kJsonSchema = 1;

void add_json(CLI::App& command, bool& json);
// UTF-8, where malformed bytes, such as of a file name, become U+FFFD. If a text in it could control a
// terminal, all characters beyond ASCII are escaped. `indent` -1: one line.
std::string dump_json(const nlohmann::ordered_json& document, int indent = 2);
void print_json(const nlohmann::ordered_json& document);
// {"schema":1,"error":"…","exit_code":2}
void print_json_error(const std::string& error, int exit_code);
// A number, or the text nan, inf or -inf, which JSON has no numbers for.
nlohmann::ordered_json json_number(double value);

}}  // namespace holdfast::v0_2
