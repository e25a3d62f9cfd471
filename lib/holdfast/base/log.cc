#include "holdfast/base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/system/stderr_writer.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// To the line's start, then erase to its end (ECMA-48).
constexpr std::string_view kWipe = "\r\x1b[K";

StderrWriter& standard_error() {
  static StderrWriter writer;
  return writer;
}

// Allocates nothing: prints plain ASCII, and "?" for every other byte. Lines of other threads may mix in.
void write_in_pieces(std::string_view word, std::string_view text) {
  StderrWriter& writer = standard_error();
  bool whole = writer.write("holdfast: ") && writer.write(word);
  while (whole && !text.empty()) {
    std::array<char, 256> safe{};
    const std::size_t count = std::min(text.size(), safe.size());
    std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count), safe.begin(),
                   [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\t' ? c : '?'; });
    whole = writer.write({safe.data(), count});
    text.remove_prefix(count);
  }
  if (!whole || !writer.write("\n")) writer.lose_line();
}

// Asked for each status line, because a person may resize the terminal meanwhile.
std::size_t terminal_width() {
  winsize size{};
  // A terminal of unknown width reports 0 columns; 80 is the usual one.
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

constexpr std::array<std::string_view, 5> kLevels{"debug", "info", "warning", "error", "off"};

// In text, the level's name before a message.
std::string_view word_before(LogLevel level) {
  static constexpr std::array<std::string_view, 5> kWords{"debug: ", "", "warning: ", "error: ", ""};
  return kWords[static_cast<std::size_t>(level)];
}

// How a message becomes a line.
struct LineStyle {
  bool json = false;
  bool times = false;  // in text
  std::string prefix = "holdfast: ";
  std::string host = {};  // this and the following stand in JSON
  int rank = 0;
  std::string run = {};
};

std::string loss_of(std::uint64_t lines) {
  return lines == 1
             ? "1 line of this log was lost because its reader did not read"
             : std::to_string(lines) + " lines of this log were lost because their reader did not read";
}

std::string utc_now() { return format_utc(Clock::real().wall_now()); }

std::string json_line(const LineStyle& style, std::string_view level, std::string_view message) {
  std::string line = R"({"time":)" + json_text(utc_now()) + R"(,"level":)" + json_text(std::string(level)) +
                     R"(,"host":)" + json_text(style.host) + R"(,"rank":)" + std::to_string(style.rank);
  if (!style.run.empty()) line += R"(,"run":)" + json_text(style.run);
  return line + R"(,"message":)" + json_text(terminal_text(message)) + "}";
}

// Standard error with the status line at its end. One lock covers both; otherwise they would mix.
class Log {
 public:
  bool enabled(LogLevel level) const noexcept { return level >= level_.load(std::memory_order_relaxed); }
  void set_level(LogLevel level) noexcept { level_.store(level, std::memory_order_relaxed); }

  void message(LogLevel level, std::string_view text) {
    const MutexLock lock(mutex_);
    write_line(styled(level, text));
  }

  void line(std::string_view text) {
    const MutexLock lock(mutex_);
    style_.json ? write_line(json_line(style_, kLevels[1], text)) : write_line(text);
  }

  void status(std::string_view text) {
    const MutexLock lock(mutex_);
    if (style_.json) return;  // every line is an object
    // One column less, because a full line makes some terminals wrap and the wipe then misses the first
    // part. Cut when it is printable: an escaped byte takes four columns, half a character would be escaped.
    status_.assign(cut_text(terminal_text(text), terminal_width() - 1));
    out_.assign(kWipe).append(status_);
    standard_error().write(out_);
  }

  void clear_status() {
    const MutexLock lock(mutex_);
    if (status_.empty()) return;
    status_.clear();
    standard_error().write(kWipe);
  }

  template <class Change>
  void restyle(const Change& change) {
    const MutexLock lock(mutex_);
    change(style_);
  }
  bool json() {
    const MutexLock lock(mutex_);
    return style_.json;
  }

 private:
  std::string styled(LogLevel level, std::string_view text) const HOLDFAST_REQUIRES(mutex_) {
    if (style_.json) return json_line(style_, kLevels[static_cast<std::size_t>(level)], text);
    // On a terminal a person watches, and the times would push the messages to the right.
    const bool timed = style_.times && !stderr_is_terminal();
    return (timed ? utc_now() + " " : std::string())
        .append(style_.prefix)
        .append(word_before(level))
        .append(text);
  }

  void write_line(std::string_view text) HOLDFAST_REQUIRES(mutex_) {
    StderrWriter& writer = standard_error();
    const std::uint64_t lost = writer.lost_lines();
    if (lost != 0 && StderrWriter::has_room() && put(styled(LogLevel::warning, loss_of(lost)))) {
      writer.told(lost);
    }
    if (!put(text)) writer.lose_line();
  }

  // False: the reader did not take the line.
  bool put(std::string_view text) HOLDFAST_REQUIRES(mutex_) {
    out_.clear();
    // Removes the status line first and draws it again below, in one write: no other output can come
    // between.
    if (!status_.empty()) out_ += kWipe;
    out_.append(terminal_text(text)) += '\n';
    out_ += status_;
    return standard_error().write(out_);
  }

  std::atomic<LogLevel> level_{LogLevel::info};
  Mutex mutex_;
  LineStyle style_ HOLDFAST_GUARDED_BY(mutex_);
  std::string status_ HOLDFAST_GUARDED_BY(mutex_);
  std::string out_ HOLDFAST_GUARDED_BY(mutex_);
};

std::optional<LogLevel> level_named(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (kLevels[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void set_format(Log& log, bool json) {
  log.restyle([&](LineStyle& style) {
    style.json = json;
    if (json && style.host.empty()) style.host = host_name();
  });
}

Log& the_log() {
  static Log* log = [] {
    auto* made = new Log();  // never destroyed: threads may log until the process ends
    const auto text = env_text(kEnvLog);
    // No exception for a wrong level here: any message may be the first one. configure_log() reports it.
    made->set_level(level_named(text.value_or("info")).value_or(LogLevel::info));
    set_format(*made, env_text(kEnvLogFormat) == "json");
    return made;
  }();
  return *log;
}

}  // namespace

void log_message(LogLevel level, std::string_view message) noexcept {
  if (level == LogLevel::off || !log_enabled(level)) return;
  try {
    the_log().message(level, message);
  } catch (const std::exception&) {
    // Without memory the line loses its prefix, but never its text.
    write_in_pieces(word_before(level), message);
  }
}

void log_formatted(LogLevel level, std::string_view format,
                   std::initializer_list<LogArgument> arguments) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_message(level, format_log(format, arguments));
  } catch (const std::exception&) {
    // The bare format says more than no line.
    log_message(level, format);
  }
}

bool log_enabled(LogLevel level) noexcept {
  try {
    return the_log().enabled(level);
  } catch (const std::exception&) {  // no memory for the log itself; a later message makes it
    // Debug lines stay off without memory; each line would fail again.
    return level >= LogLevel::info;
  }
}

void configure_log() {
  // Called by programs at their start, when a wrong variable can still end them with a message.
  const auto text = env_text(kEnvLog);
  const auto level = level_named(text.value_or("info"));
  if (!level) {
    throw UsageError("environment variable HOLDFAST_LOG=" + *text +
                     ": expected debug, info, warning, error or off");
  }
  const auto format = env_text(kEnvLogFormat).value_or("text");
  if (format != "text" && format != "json") {
    throw UsageError("environment variable HOLDFAST_LOG_FORMAT=" + format + ": expected text or json");
  }
  set_log_level(*level);
  set_format(the_log(), format == "json");
  show_log_times(true);
}

void show_log_times(bool so) {
  the_log().restyle([&](LineStyle& style) { style.times = so; });
}

void set_log_run(const std::string& directory) {
  the_log().restyle([&](LineStyle& style) { style.run = terminal_text(directory); });
}

bool log_is_json() { return the_log().json(); }

void set_log_level(LogLevel level) { the_log().set_level(level); }

void set_log_rank(int rank, int world_size) {
  the_log().restyle([&](LineStyle& style) {
    style.rank = rank;
    style.prefix = world_size > 1 ? "holdfast[rank " + std::to_string(rank) + "]: " : "holdfast: ";
  });
}

void print_line(std::string_view line) noexcept {
  try {
    the_log().line(line);
  } catch (const std::exception&) {
    write_in_pieces({}, line);
  }
}

void show_status_line(std::string_view text) noexcept {
  try {
    the_log().status(text);
  } catch (const std::exception&) {  // progress draws the next status line soon
  }
}

void clear_status_line() noexcept {
  try {
    the_log().clear_status();
  } catch (const std::exception&) {  // without a log there is no status line
  }
}
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}}  // namespace holdfast::v0_2
