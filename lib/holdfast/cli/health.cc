#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/ledger_tail.h"

namespace holdfast { inline namespace v1 {
namespace {

using Json = nlohmann::json;

struct HealthRequest {
  std::filesystem::path directory;
  std::string blind_after = "1min";
  std::string silent_after = "10min";
};

struct SourceWord {
  Duration blind{};  // blind time up to that line; zero: it sees
  std::string why = {};
};

// The newest facts in the newest attempt's ledger.
struct LastWords {
  std::int64_t unix_ms = -1;  // of the newest line; -1: there is none
  std::int64_t step = -1;
  bool ended = false;
  std::map<std::string, SourceWord> sources = {};
};

std::string text_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

// A value that is no number, or a year or more, counts as zero.
double milliseconds_of(const Json& line, const char* name) {
  constexpr double kYear = 366.0 * 24 * 3600 * 1000;
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number()) return 0;
  const auto value = found->get<double>();
  return value > 0 && value < kYear ? value : 0;
}

void hear(LastWords& words, std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  if (!line.is_object()) return;  // a torn line, or the rest of one
  const std::string event = text_of(line, "event");
  const auto time = line.find("t");
  if (time != line.end() && time->is_number_integer()) {
    words.unix_ms = std::max(words.unix_ms, time->get<std::int64_t>());
  }
  const auto step = line.find("step");
  const bool tells_step = event == "start" || event == "progress";
  if (tells_step && step != line.end() && step->is_number_integer()) words.step = step->get<std::int64_t>();
  words.ended = event == "end" || (words.ended && event != "start");
  if (event != "source" || text_of(line, "name").empty()) return;
  const std::chrono::duration<double, std::milli> blind(milliseconds_of(line, "blind_now_ms"));
  words.sources[text_of(line, "name")] = {.blind = std::chrono::duration_cast<Duration>(blind),
                                          .why = text_of(line, "why")};
}

LastWords last_words(std::string_view lines) {
  LastWords words;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    hear(words, lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return words;
}

bool has_ended(const RunState& state) {
  return state.phase != RunPhase::starting && state.phase != RunPhase::running;
}

int nobody(const std::string& why) {
  std::cout << "nobody trains here: " << why << '\n';
  return static_cast<int>(ExitCode::not_running);
}

int run_health(const HealthRequest& options) {
  const Duration blind_after = duration_of("--blind-after", options.blind_after);
  const Duration silent_after = duration_of("--silent-after", options.silent_after);
  open_run_directory(options.directory);  // an unreadable directory is an error, not an empty run
  const LedgerTail::News news = LedgerTail(options.directory).look();
  if (news.newest.attempt == 0) return nobody("no attempt has begun");
  const std::string attempt = "attempt " + std::to_string(news.newest.attempt);
  const LastWords words = last_words(news.lines);
  if (words.ended || (news.newest.state && has_ended(*news.newest.state))) {
    return nobody(attempt + " has ended; holdfast ls shows how");
  }
  if (words.unix_ms < 0) return nobody(attempt + " has not begun to train yet");
  const WallTime last_word{std::chrono::milliseconds(words.unix_ms)};
  const auto age = std::chrono::duration_cast<Duration>(Clock::real().wall_now() - last_word);
  if (age > silent_after) {
    return nobody(attempt + " has written nothing for " + format_duration(age) + "; it hangs, or died");
  }
  bool blind = false;
  for (const auto& [name, source] : words.sources) {
    if (source.blind < blind_after) continue;
    blind = true;
    std::cout << attempt << " is blind: its interruption source " << printable(name, 40)
              << " has not seen for " << format_duration(source.blind)
              << (source.why.empty() ? "" : " (" + printable(source.why, 400) + ")") << '\n';
  }
  if (blind) return static_cast<int>(ExitCode::difference);
  std::cout << attempt << " trains, at step " << format_count(words.step);
  for (const auto& [name, source] : words.sources) std::cout << ", " << printable(name, 40) << " sees";
  std::cout << '\n';
  return 0;
}

constexpr char kHealthFooter[] = R"(Of a run with several ranks, the sources are those of rank 0's host.

Exit code: 0 trains, and no source is blind; 1 trains, and a source is blind; 2 the directory cannot be read;
3 nobody trains there: no attempt has begun to train, the newest has ended, or it is silent.

Example:
  holdfast health /mnt/ckpt/run1 --blind-after 2min || alert)";

}  // namespace

void add_health(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<HealthRequest>();
  CLI::App* const command =
      app.add_subcommand("health", "Tell whether a run trains, and whether it would see an interruption");
  command->add_option("DIR", options->directory, "the run directory")->required();
  add_time(*command, "--blind-after", options->blind_after,
           "a source that got no answer for this long counts as blind; the ledger records it every 10 s");
  add_time(*command, "--silent-after", options->silent_after,
           "a run whose ledger has had no new line for this long counts as not training; it writes none "
           "while it writes a checkpoint");
  command->footer(kHealthFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_health(*options); }; });
}

}}  // namespace holdfast::v1
