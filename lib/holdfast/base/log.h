// What Holdfast says to people, on standard error: `holdfast: resuming at step 1,200`. Standard output
// belongs to the program's result.
//
// Every line is written with one write(2), so lines of several threads and processes do not mix. With several
// ranks, a line begins `holdfast[rank 2]:`. The level comes from HOLDFAST_LOG (base/env.h).
//
// The last line of a terminal can be a *status line* (progress) that is redrawn in place: it is wiped before
// any other line is printed, and drawn again below it.
//
// Errors: none; what cannot be written is dropped (standard error may be closed). A message that finds no
// memory is written as it stands, without the rank and with its {} unfilled.
// Threads: everything may be called from any thread; not from signal handlers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace holdfast::inline v1 {

enum class LogLevel { debug, info, warning, error, off };

// One argument of a message. Not fmt's own type: LibTorch ships another fmt, and its headers would meet ours.
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

// A format known at compile time, in fmt's language. As many {…} as arguments, or it does not compile.
template <class... Args>
struct LogFormat {
  template <class Text>
  requires std::convertible_to<const Text&, std::string_view>
  consteval LogFormat(const Text& literal) : text(literal) {  // NOLINT(google-explicit-constructor)
    std::size_t fields = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '{') continue;
      if (i + 1 < text.size() && text[i + 1] == '{') {
        ++i;
      } else {
        ++fields;
      }
    }
    if (fields != sizeof...(Args)) throw "the number of {} and of arguments differ";
  }
  std::string_view text;
};

// fmt's formatting of `format`; the format itself when it is wrong.
std::string format_log(std::string_view format, std::initializer_list<LogArgument> arguments);

// Writes one finished message; braces in it have no meaning.
void log_message(LogLevel level, std::string_view message) noexcept;
void log_formatted(LogLevel level, std::string_view format,
                   std::initializer_list<LogArgument> arguments) noexcept;
bool log_enabled(LogLevel level) noexcept;

// Reads HOLDFAST_LOG; UsageError when it is none of the levels. Programs call it first thing. Without it the
// variable is read at the first message, and a wrong value counts as `info`.
void configure_log();
void set_log_level(LogLevel level);
// Names the rank in every line; a world of one needs no name.
void set_log_rank(int rank, int world_size);

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

// A line of its own without prefix or level (a progress line, a table). No newline at its end.
void print_line(std::string_view line) noexcept;
// Draws or replaces the status line; too long a text is cut to the terminal's width. Only for terminals.
void show_status_line(std::string_view text) noexcept;
// Wipes it (before the last result, or when progress becomes plain lines).
void clear_status_line() noexcept;
bool stderr_is_terminal();

}  // namespace holdfast::inline v1
