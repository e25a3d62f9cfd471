#include "holdfast/cli/output/color.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>

#include "holdfast/base/env.h"

namespace holdfast { inline namespace v0_2 {

std::string Paint::operator()(Color color, const std::string& text) const {
  constexpr std::array kCodes{"", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m"};
  if (!on_ || color == Color::plain || text.empty()) return text;
  return kCodes.at(static_cast<std::size_t>(color)) + text + "\x1b[0m";
}

void add_color(CLI::App& command, std::string& when) {
  command
      .add_option("--color", when,
                  "color the output: auto (at a terminal, unless NO_COLOR is set), always, never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

Paint paint_for(const std::string& when) {
  // What a user says outright overrides the terminal and NO_COLOR, so that `--color=always | less -R` works.
  if (when != "auto") return Paint(when == "always");
  // NO_COLOR (no-color.org) and TERM=dumb are the two wishes that programs for terminals agree on.
  return Paint(isatty(STDOUT_FILENO) == 1 && !env_text(kEnvNoColor) && env_text(kEnvTerm) != "dumb");
}

}}  // namespace holdfast::v0_2
