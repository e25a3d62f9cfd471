#include "holdfast/base/last_words.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// For the launcher's one line.
std::string one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t size = character_length(text);
    // One byte at a time, so that a broken character cannot hide the quote that follows it.
    if (size == 0) {
      line += '?';
    } else if (static_cast<unsigned char>(text.front()) < 0x20) {
      line += ' ';
    } else {
      line += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return line;
}

}  // namespace

void tell_launcher(std::string_view sentence) noexcept {
  try {
    const auto path = env_text(kEnvElasticErrorFile);
    if (!path) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string message = json_text(one_line(sentence));
    // torchrun prints the call stack if there is one, otherwise the message.
    const std::string json = R"({"message": {"message": )" + message + R"(, "extraInfo": {"py_callstack": )" +
                             message + R"(, "timestamp": ")" +
                             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()) +
                             "\"}}}";
    // Opened directly: the file is the launcher's and lies outside of every run directory, and base stands
    // below io.
    const int file = open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) return;
    // Best effort: torchrun falls back to the exit code if the file is incomplete.
    [[maybe_unused]] const ssize_t written = write(file, json.data(), json.size());
    close(file);
  } catch (const std::exception&) {  // standard error still gets the sentence
  }
}

int last_words(const std::exception& error, int exit_code_interrupted) noexcept {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  std::string_view text = what_of(error);
  // LibTorch adds a stack trace of many lines after the first one.
  if (ours == nullptr) text = text.substr(0, text.find('\n'));
  tell_launcher(text);  // before the log: a file blocks less often than a pipe without a reader
  log_message(LogLevel::error, text);
  const ExitCode code = ours != nullptr ? ours->exit_code() : ExitCode::internal;
  // Only this code has a substitute (--exit-code-interrupted); launchers must still see the others.
  return code == ExitCode::interrupted ? exit_code_interrupted : static_cast<int>(code);
}

int run(const std::function<int()>& body, int exit_code_interrupted) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return last_words(error, exit_code_interrupted);
  } catch (...) {
    return last_words(std::runtime_error("an exception of unknown type"), exit_code_interrupted);
  }
}

}}  // namespace holdfast::v0_2
