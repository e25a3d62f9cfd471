#include "holdfast/cli/output/json_output.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/bits.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {

using Json = nlohmann::ordered_json;

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON object, also for an error");
}

std::string dump_json(const Json& document, int indent) {
  // dump() would throw for a name of a file that is not UTF-8. Replaced, the object stays valid JSON.
  constexpr auto kReplace = Json::error_handler_t::replace;
  const std::string text = document.dump(indent, ' ', false, kReplace);
  // A stranger may have written a checkpoint's texts and a file's name. Escaped they mean the same to a
  // program.
  return terminal_text(text) == text ? text : document.dump(indent, ' ', true, kReplace);
}

void print_json(const Json& document) { std::cout << dump_json(document) << '\n'; }

void print_json_error(const std::string& error, int exit_code) {
  print_json({{"schema", kJsonSchema}, {"error", error}, {"exit_code", exit_code}});
}

// nlohmann writes null for nan and inf, and a reader could not tell a NaN from an unknown value.
Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(shortest_decimal(value)); }

}}  // namespace holdfast::v0_2
