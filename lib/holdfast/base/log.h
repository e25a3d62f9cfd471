// Messages for people, on standard error: `holdfast: resuming at step 1,200`. Standard output belongs to the
// program's result.
//
// One write(2) prints each line, so lines of several threads and processes do not mix. With several ranks a
// line begins with `holdfast[rank 2]:`. HOLDFAST_LOG (base/env.h) sets the level. Where standard error is no
// terminal, the lines of a training and of a wrapper begin with the time: `2026-03-01T12:00:05Z holdfast: …`.
// HOLDFAST_LOG_FORMAT=json makes each line one JSON object with time, level, host, rank, run and message.
// On a terminal the last line can be a *status line* (progress): the log erases it before it prints another
// line, and draws it again below.
//
// Errors: none. Without memory, the format text is written unfilled. A reader that does not read holds a
// thread for 100 ms at most; then lines are lost (stderr_writer.h). Threads: any, but no signal handler.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class LogLevel { debug, info, warning, error, off };

// One argument of a message.
using LogArgument = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view>;

template <class T>
LogArgument log_argument(const T& value) {
  if constexpr (std::same_as<T, bool> || std::floating_point<T>) {
    return value;
  } else if constexpr (std::unsigned_integral<T>) {
    return static_cast<std::uint64_t>(value);
  } else if constexpr (std::integral<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    return std::string_view(value.native());
  } else {
    return std::string_view(value);
  }
}

// The length of the field at the begin of `text`: 2 for `{}`, 6 for `{:.3f}`, three digits after the point
// (0 to 9, of floating point alone). 0: no field.
constexpr std::size_t log_field_length(std::string_view text) {
  if (text.starts_with("{}")) return 2;
  const bool places = text.size() >= 6 && text.starts_with("{:.") && text.substr(4, 2) == "f}";
  return places && text[3] >= '0' && text[3] <= '9' ? 6 : 0;
}

// A format known at compile time. `{{` and `}}` are braces. It compiles only if its fields fit the arguments.
// Holdfast formats by itself: a program may bring a formatting library of any version.
template <class... Args>
struct LogFormat {
  template <class Text>
  requires std::convertible_to<const Text&, std::string_view>
  consteval LogFormat(const Text& literal) : text(literal) {  // NOLINT(google-explicit-constructor)
    constexpr std::array numbers{std::floating_point<Args>...};
    std::size_t fields = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '{' && text[i] != '}') continue;
      if (i + 1 < text.size() && text[i + 1] == text[i]) {
        ++i;
        continue;
      }
      const std::size_t length = log_field_length(text.substr(i));
      if (length == 0) throw "a brace is neither part of {} or {:.3f}, nor doubled";
      if (fields == numbers.size()) throw "there are more {} than arguments";
      if (length > 2 && !numbers[fields]) throw "{:.3f} takes floating point alone";
      ++fields;
      i += length - 1;
    }
    if (fields < numbers.size()) throw "there are more arguments than {}";
  }
  std::string_view text;
};

// Fills in the fields of `format`. Returns `format` itself if it has a single brace, more fields than
// arguments, or a field that does not fit its argument.
HOLDFAST_EXPORT std::string format_log(std::string_view format, std::initializer_list<LogArgument> arguments);

// Writes one finished message. Braces in it are ordinary characters.
HOLDFAST_EXPORT void log_message(LogLevel level, std::string_view message) noexcept;
HOLDFAST_EXPORT void log_formatted(LogLevel level, std::string_view format,
                                   std::initializer_list<LogArgument> arguments) noexcept;
HOLDFAST_EXPORT bool log_enabled(LogLevel level) noexcept;

// Reads HOLDFAST_LOG and HOLDFAST_LOG_FORMAT. Throws UsageError for an unknown value. Programs call it first.
// Without this call the first message reads the variables, and a wrong value counts as the default. Turns on
// the times of text lines, as a Checkpointer does.
HOLDFAST_EXPORT void configure_log();
// Whether text lines begin with the time. Off for a program that answers a person and ends soon.
HOLDFAST_EXPORT void show_log_times(bool so);
// The run directory, for the member `run` of JSON lines.
HOLDFAST_EXPORT void set_log_run(const std::string& directory);
HOLDFAST_EXPORT bool log_is_json();
HOLDFAST_EXPORT void set_log_level(LogLevel level);
// Puts the rank into every line; a world of one shows no rank.
HOLDFAST_EXPORT void set_log_rank(int rank, int world_size);

inline void log_debug(std::string_view message) { log_message(LogLevel::debug, message); }
inline void log_info(std::string_view message) { log_message(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log_message(LogLevel::warning, message); }
inline void log_error(std::string_view message) { log_message(LogLevel::error, message); }

template <class First, class... Rest>
void log_debug(LogFormat<std::type_identity_t<First>, std::type_identity_t<Rest>...> format,
               const First& first, const Rest&... rest) {
  log_formatted(LogLevel::debug, format.text, {log_argument(first), log_argument(rest)...});
}
template <class First, class... Rest>
void log_info(LogFormat<std::type_identity_t<First>, std::type_identity_t<Rest>...> format,
              const First& first, const Rest&... rest) {
  log_formatted(LogLevel::info, format.text, {log_argument(first), log_argument(rest)...});
}
template <class First, class... Rest>
void log_warning(LogFormat<std::type_identity_t<First>, std::type_identity_t<Rest>...> format,
                 const First& first, const Rest&... rest) {
  log_formatted(LogLevel::warning, format.text, {log_argument(first), log_argument(rest)...});
}
template <class First, class... Rest>
void log_error(LogFormat<std::type_identity_t<First>, std::type_identity_t<Rest>...> format,
               const First& first, const Rest&... rest) {
  log_formatted(LogLevel::error, format.text, {log_argument(first), log_argument(rest)...});
}

// Prints a line without prefix and level, such as a table's. `line` has no newline at its end.
HOLDFAST_EXPORT void print_line(std::string_view line) noexcept;
// Draws or replaces the status line, cut to the terminal's width. Call it only on a terminal.
HOLDFAST_EXPORT void show_status_line(std::string_view text) noexcept;
// Erases the status line: before the last result, or before progress continues as plain lines.
HOLDFAST_EXPORT void clear_status_line() noexcept;
HOLDFAST_EXPORT bool stderr_is_terminal();

}}  // namespace holdfast::v0_2
