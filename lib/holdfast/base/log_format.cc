#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

template <class... Form>
std::string text_of_double(double value, Form... form) {
  std::array<char, 330>
      digits{};  // the largest double has 309 before the point, and a field asks for 9 behind
  const auto written = std::to_chars(digits.begin(), digits.end(), value, form...);
  return {digits.begin(), written.ptr};
}

// The shortest text that reads back as the same number: 100000 and not 1e+05, but 1e+16.
std::string shortest(double value) {
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16) || !std::isfinite(value);
  return text_of_double(value, plain ? std::chars_format::fixed : std::chars_format::scientific);
}

// nullopt: `field` wants a number with digits after the point, and `argument` has none.
std::optional<std::string> filled(std::string_view field, const LogArgument& argument) {
  if (field != "{}") {
    const auto* const number = std::get_if<double>(&argument);
    if (number == nullptr) return std::nullopt;
    return text_of_double(*number, std::chars_format::fixed, field[3] - '0');
  }
  return std::visit(
      [](const auto& value) -> std::string {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<Value, double>) {
          return shortest(value);
        } else if constexpr (std::is_same_v<Value, std::string_view>) {
          return std::string(value);
        } else {
          return std::to_string(value);
        }
      },
      argument);
}

}  // namespace

std::string format_log(std::string_view format, std::initializer_list<LogArgument> arguments) {
  std::string text;
  const LogArgument* argument = arguments.begin();
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool brace = c == '{' || c == '}';
    if (!brace || (i + 1 < format.size() && format[i + 1] == c)) {
      text += c;
      if (brace) ++i;
      continue;
    }
    const std::string_view field = format.substr(i, log_field_length(format.substr(i)));
    if (field.empty() || argument == arguments.end()) return std::string(format);
    const auto value = filled(field, *argument++);
    if (!value) return std::string(format);
    text += *value;
    i += field.size() - 1;
  }
  return text;
}

}}  // namespace holdfast::v0_2
