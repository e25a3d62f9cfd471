#include "holdfast/base/log.h"

#include <fmt/args.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::string_view kWipe = "\r\x1b[K";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Without any memory of its own. May mix with lines of other threads.
void write_in_pieces(std::string_view word, std::string_view text) {
  for (const std::string_view piece : {std::string_view("holdfast: "), word, text, std::string_view("\n")}) {
    write_all(piece);
  }
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// Standard error and the status line at its end. One lock for both, or they would mix.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void line(std::string_view text) {
    const std::lock_guard lock(mutex_);
    write_line(text);
  }

  void status(std::string_view text) {
    const std::lock_guard lock(mutex_);
    status_.assign(text.substr(0, terminal_width() - 1));
    out_.assign(kWipe).append(status_);
    write_all(out_);
  }

  void clear_status() {
    const std::lock_guard lock(mutex_);
    if (status_.empty()) return;
    status_.clear();
    write_all(kWipe);
  }

 private:
  // spdlog would swallow what is thrown in here.
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    try {
      spdlog::memory_buf_t formatted;
      formatter_->format(message, formatted);
      write_line({formatted.data(), formatted.size()});
    } catch (const std::bad_alloc&) {
      write_in_pieces({}, text);
    }
  }

  void flush_() override {}

  void write_line(std::string_view text) {
    out_.clear();
    if (!status_.empty()) out_ += kWipe;
    out_.append(text) += '\n';
    out_ += status_;
    write_all(out_);
  }

  std::string status_;
  std::string out_;
};

// Never destroyed: threads may log until the very end of the process.
struct Log {
  Log() : sink(std::make_shared<StderrSink>()), logger("holdfast", sink) { set_prefix("holdfast: "); }

  void set_prefix(const std::string& prefix) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>(
        prefix + "%v", spdlog::pattern_time_type::local, std::string());
    sink->set_formatter(std::move(formatter));
  }

  std::shared_ptr<StderrSink> sink;
  spdlog::logger logger;
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  static constexpr std::array kLevels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                      spdlog::level::err, spdlog::level::off};
  return kLevels[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> level_named(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

Log& the_log() {
  static Log* log = [] {
    auto* made = new Log();  // leaked on purpose
    const auto text = env_text(kEnvLog);
    made->logger.set_level(to_spdlog(level_named(text.value_or("info")).value_or(LogLevel::info)));
    return made;
  }();
  return *log;
}

}  // namespace

std::string format_log(std::string_view format, std::initializer_list<LogArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const LogArgument& argument : arguments) {
    std::visit([&](const auto& value) { store.push_back(value); }, argument);
  }
  try {
    return fmt::vformat(fmt::string_view(format.data(), format.size()), store);
  } catch (const fmt::format_error&) {
    return std::string(format);
  }
}

void log_message(LogLevel level, std::string_view message) noexcept {
  static constexpr std::array<std::string_view, 5> kWords{"debug: ", "", "warning: ", "error: ", ""};
  if (level == LogLevel::off || !log_enabled(level)) return;
  const std::string_view word = kWords[static_cast<std::size_t>(level)];
  try {
    std::string text(word);
    the_log().logger.log(to_spdlog(level), text.append(message));
  } catch (const std::exception&) {
    write_in_pieces(word, message);
  }
}

void log_formatted(LogLevel level, std::string_view format,
                   std::initializer_list<LogArgument> arguments) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_message(level, format_log(format, arguments));
  } catch (const std::exception&) {
    log_message(level, format);
  }
}

bool log_enabled(LogLevel level) noexcept {
  try {
    return the_log().logger.should_log(to_spdlog(level));
  } catch (const std::exception&) {  // the log itself found no memory; it is made at a later message
    return level >= LogLevel::info;
  }
}

void configure_log() {
  const auto text = env_text(kEnvLog);
  const auto level = level_named(text.value_or("info"));
  if (!level) {
    throw UsageError("environment variable HOLDFAST_LOG=" + *text +
                     ": expected debug, info, warning, error or off");
  }
  set_log_level(*level);
}

void set_log_level(LogLevel level) { the_log().logger.set_level(to_spdlog(level)); }

void set_log_rank(int rank, int world_size) {
  the_log().set_prefix(world_size > 1 ? "holdfast[rank " + std::to_string(rank) + "]: " : "holdfast: ");
}

void print_line(std::string_view line) noexcept {
  try {
    the_log().sink->line(line);
  } catch (const std::exception&) {
    write_in_pieces({}, line);
  }
}

void show_status_line(std::string_view text) noexcept {
  try {
    the_log().sink->status(text);
  } catch (const std::exception&) {  // the next one is due in a moment
  }
}

void clear_status_line() noexcept {
  try {
    the_log().sink->clear_status();
  } catch (const std::exception&) {  // there was no log yet, so no line either
  }
}
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace holdfast::inline v1
