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
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Length of the well-formed UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // Rejects overlong forms and surrogates.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (lead < 0xC2 || lead > 0xF4 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return size;
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t size = character_at(text);
    const char first = text.front();
    // One byte at a time, so that a broken character cannot hide the quote that follows it.
    if (size == 0) {
      json += '?';
    } else if (size == 1 && static_cast<unsigned char>(first) < 0x20) {
      json += ' ';
    } else {
      if (first == '"' || first == '\\') json += '\\';
      json += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return json + '"';
}

}  // namespace

void tell_launcher(std::string_view sentence) noexcept {
  try {
    const auto path = env_text(kEnvElasticErrorFile);
    if (!path) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string message = json_string(sentence);
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
