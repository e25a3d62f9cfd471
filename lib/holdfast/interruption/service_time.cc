#include "holdfast/interruption/service_time.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Not strftime() and strptime(), which depend on the locale.
constexpr std::array<std::string_view, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<std::string_view, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

std::string two(unsigned number) {
  return {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10)};
}

// Takes the next word, up to a blank.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// Converts "01 Jun 2025 12:00:05 GMT" to RFC 3339.
std::optional<std::string> as_rfc3339(std::string_view text) {
  const std::string_view day = take_word(text);
  const auto month = std::find(kMonths.begin(), kMonths.end(), take_word(text));
  const std::string_view year = take_word(text);
  const std::string_view time = take_word(text);
  // A day of one digit is legal in RFC 1123, where RFC 3339 wants two.
  if (day.empty() || day.size() > 2 || month == kMonths.end()) return std::nullopt;
  if (text != "GMT" && text != "UTC") return std::nullopt;
  std::string result(year);
  result += '-' + two(static_cast<unsigned>(month - kMonths.begin()) + 1);
  result += day.size() == 1 ? "-0" : "-";
  result.append(day).append("T").append(time).append("Z");
  return result;
}

}  // namespace

std::optional<WallTime> parse_service_time(std::string_view text) {
  if (const auto time = parse_utc(text)) return time;
  if (text.size() > 5 && text.substr(3, 2) == ", ") {
    // The day of the week must be one, but nobody checks that it fits the date.
    if (std::find(kDays.begin(), kDays.end(), text.substr(0, 3)) == kDays.end()) return std::nullopt;
    text.remove_prefix(5);
  }
  const auto written = as_rfc3339(text);
  return written ? parse_utc(*written) : std::nullopt;
}

std::string format_http_date(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  std::string text(kDays[std::chrono::weekday(day).c_encoding()]);
  text += ", " + two(static_cast<unsigned>(date.day())) + ' ';
  text += kMonths[static_cast<unsigned>(date.month()) - 1];
  text += ' ' + std::to_string(static_cast<int>(date.year())) + ' ';
  text += two(static_cast<unsigned>(clock.hours().count())) + ':';
  text += two(static_cast<unsigned>(clock.minutes().count())) + ':';
  text += two(static_cast<unsigned>(clock.seconds().count())) + " GMT";
  return text;
}

}}  // namespace holdfast::v0_2
