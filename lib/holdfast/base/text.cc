#include "holdfast/base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>

namespace holdfast { inline namespace v0_2 {
namespace {

struct Unit {
  std::string_view name;
  double nanoseconds;
};

constexpr std::array<Unit, 9> kUnits{{{"ns", 1.0},
                                      {"us", 1e3},
                                      {"ms", 1e6},
                                      {"s", 1e9},
                                      {"sec", 1e9},
                                      {"m", 60e9},
                                      {"min", 60e9},
                                      {"h", 3600e9},
                                      {"d", 86400e9}}};
// A century: below the 292 years that 64-bit nanoseconds hold, and above any sensible value.
constexpr double kLongest = 100.0 * 365 * 86400e9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <class... Args>
std::string print(const char* format, Args... args) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, args...);
  // 64 bytes hold the longest text that this file prints.
  return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string with_separators(const std::string& digits) {
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// RFC 3339 has fields of fixed width: "2025-1-1" is refused, not guessed.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (!is_digit(text[i])) return std::nullopt;
    value = 10 * value + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take_one_of(std::string_view& text, std::string_view characters) {
  if (text.empty() || characters.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// ".25" to nanoseconds; finer digits are dropped.
std::optional<std::chrono::nanoseconds> take_fraction(std::string_view& text) {
  if (!take_one_of(text, ".")) return std::chrono::nanoseconds(0);
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  std::int64_t value = 0;
  // Digits beyond nanoseconds are consumed with unit 0, so they add nothing.
  for (std::int64_t unit = 100'000'000; !text.empty() && is_digit(text.front()); unit /= 10) {
    value += unit * (text.front() - '0');
    text.remove_prefix(1);
  }
  return std::chrono::nanoseconds(value);
}

// What to add to the local time to get UTC. Takes the offset from the front.
std::optional<std::chrono::minutes> take_offset(std::string_view& text) {
  if (take_one_of(text, "Zz")) return std::chrono::minutes(0);
  const bool ahead = text.starts_with('+');
  if (!take_one_of(text, "+-")) return std::nullopt;
  const auto hours = take_number(text, 2);
  if (!hours || *hours > 23 || !take_one_of(text, ":")) return std::nullopt;
  const auto minutes = take_number(text, 2);
  if (!minutes || *minutes > 59) return std::nullopt;
  const auto offset = std::chrono::hours(*hours) + std::chrono::minutes(*minutes);
  return ahead ? -offset : offset;
}

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "0") return Duration::zero();
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    std::size_t digits = 0;
    while (digits < text.size() && (is_digit(text[digits]) || text[digits] == '.')) ++digits;
    double value = 0;
    // from_chars() and not strtod(), which obeys the program's locale and may expect a decimal comma.
    const auto parsed = std::from_chars(text.data(), text.data() + digits, value, std::chars_format::fixed);
    if (digits == 0 || parsed.ec != std::errc{} || parsed.ptr != text.data() + digits) return std::nullopt;
    text.remove_prefix(digits);
    std::size_t letters = 0;
    while (letters < text.size() && text[letters] >= 'a' && text[letters] <= 'z') ++letters;
    const std::string_view name = text.substr(0, letters);
    text.remove_prefix(letters);
    const Unit* unit = nullptr;
    for (const Unit& candidate : kUnits) {
      if (candidate.name == name) unit = &candidate;
    }
    if (unit == nullptr) return std::nullopt;
    total += value * unit->nanoseconds;
    // Negated, so that a NaN is refused as well.
    if (!(total <= kLongest)) return std::nullopt;
  }
  return Duration(std::llround(total));
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  double value = 0;
  // Fixed notation alone: an E after the digits is the prefix exa, never an exponent.
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  // Not "value < 0", which a NaN would pass.
  if (error != std::errc{} || !(value >= 0)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.size() > 1 && text.front() == ' ') text.remove_prefix(1);
  if (!text.empty() && text.back() == 'B') text.remove_suffix(1);
  const bool binary = text.size() == 2 && text.back() == 'i';
  if (binary) text.remove_suffix(1);
  constexpr std::string_view kUnits = "kMGTPE";
  if (!text.empty()) {
    // Both K and k are in use for 1000; the other prefixes are capital letters only.
    const std::size_t unit = text == "K" ? 0 : kUnits.find(text.front());
    if (text.size() != 1 || unit == std::string_view::npos) return std::nullopt;
    value *= std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(unit + 1));
  }
  if (!(value <= 0x1p63)) return std::nullopt;
  // 2^63 - 1024 is the largest double below 2^63; llround() must not overflow.
  return static_cast<std::uint64_t>(std::llround(std::min(value, 0x1p63 - 1024)));
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::string format_duration(Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds <= 0) return "0s";
  // From 999.5 ms on, three digits would print "1e+03 ms".
  if (seconds < 0.9995) return print("%.3g ms", seconds * 1e3);
  if (seconds < 9.95) return print("%.1f s", seconds);
  const long long whole = std::llround(seconds);
  if (whole < 60) return print("%llds", whole);
  if (whole < 3600) return print("%lldm %02llds", whole / 60, whole % 60);
  const long long minutes = whole / 60;
  if (minutes < 24 * 60) return print("%lldh %02lldm", minutes / 60, minutes % 60);
  const long long hours = minutes / 60;
  return print("%lldd %02lldh", hours / 24, hours % 24);
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  static constexpr std::array<const char*, 6> kNames{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  // 999.5 would be printed as 1000: the next unit reads better.
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return print("%.*f %s", decimals, value, kNames[unit]);
}

std::string format_byte_rate(std::uint64_t bytes, Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds <= 0) return "0 B/s";
  // A short time makes the quotient huge, and the conversion of a double beyond 2^64 is undefined.
  const double rate = std::min(static_cast<double>(bytes) / seconds, 1e18);
  return format_bytes(static_cast<std::uint64_t>(rate)) + "/s";
}

std::string format_count(std::int64_t value) {
  if (value >= 0) return with_separators(std::to_string(value));
  // substr, not negation: the smallest integer has no positive counterpart.
  return '-' + with_separators(std::to_string(value).substr(1));
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(value);
  // Above 10^15 a double no longer holds every digit, so the separators would show invented ones.
  if (magnitude >= 999.95 && magnitude < 1e15) return format_count(std::llround(value));
  return print("%.4g", value);
}

std::string format_utc(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "unknown time";
  std::array<char, 64> buffer{};
  const std::size_t length = std::strftime(buffer.data(), buffer.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {buffer.data(), length};
}

std::optional<WallTime> parse_utc(std::string_view text) {
  using std::chrono::sys_days;
  const auto year = take_number(text, 4);
  // Nanoseconds since 1970 fit into 64 bits until 2262.
  if (!year || *year < 1970 || *year > 2261 || !take_one_of(text, "-")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take_one_of(text, "-")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day || !take_one_of(text, "Tt ")) return std::nullopt;
  const auto hour = take_number(text, 2);
  if (!hour || *hour > 23 || !take_one_of(text, ":")) return std::nullopt;
  const auto minute = take_number(text, 2);
  if (!minute || *minute > 59 || !take_one_of(text, ":")) return std::nullopt;
  const auto second = take_number(text, 2);
  // 60 is a leap second, which the clocks of Unix count as the next second.
  if (!second || *second > 60) return std::nullopt;
  const auto fraction = take_fraction(text);
  if (!fraction) return std::nullopt;
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      sys_days(date).time_since_epoch() + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
      std::chrono::seconds(*second) + *fraction + *offset));
}

}}  // namespace holdfast::v0_2
