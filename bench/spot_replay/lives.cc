#include "lives.h"

#include <cmath>
#include <fstream>
#include <random>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast::bench {
namespace {

constexpr std::size_t kMostLives = 1'000'000;
constexpr double kLongest = 10.0 * 366 * 86400;

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

Duration from_seconds(double time) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time));
}

}  // namespace

std::vector<Duration> read_machine_lives(std::istream& csv, const std::string& name) {
  std::vector<Duration> lives;
  std::string line;
  for (std::size_t number = 1; std::getline(csv, line); ++number) {
    const std::string field = trimmed(line.substr(0, line.find(',')));
    if (field.empty() && trimmed(line).empty()) continue;
    const auto seconds = parse_double(field);
    if (!seconds && number == 1) continue;
    const std::string where = name + ", line " + std::to_string(number) + ": ";
    if (!seconds) throw UsageError(where + "'" + printable(field, 40) + "' is no number of seconds");
    if (!(*seconds > 0 && *seconds <= kLongest)) {
      throw UsageError(where + "a life of " + printable(field, 40) +
                       " s; give more than 0, at most ten years");
    }
    if (lives.size() == kMostLives) throw UsageError(where + "more than a million lives");
    lives.push_back(from_seconds(*seconds));
  }
  if (csv.bad()) throw UsageError(name + ": cannot be read");
  if (lives.empty()) throw UsageError(name + ": no lives in it; give seconds, one a line");
  return lives;
}

std::vector<Duration> read_machine_lives(const std::filesystem::path& csv) {
  std::ifstream file(csv);
  if (!file) throw UsageError(csv.native() + ": cannot be opened");
  return read_machine_lives(file, csv.native());
}

std::vector<Duration> draw_machine_lives(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Duration> lives;
  lives.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double share = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    double minutes = 0;
    if (share < 0.25) {
      minutes = 10 * share / 0.25;
    } else if (share < 0.5) {
      minutes = 10 * std::pow(39.0 / 10, (share - 0.25) / 0.25);
    } else {
      minutes = 39 * std::pow(690.0 / 39, (share - 0.5) / 0.5);
    }
    lives.push_back(from_seconds(60 * minutes));
  }
  return lives;
}

}  // namespace holdfast::bench
