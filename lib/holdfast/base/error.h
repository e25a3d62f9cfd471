// The exceptions that end a run. What is expected (no checkpoint yet, a rejected candidate, a notice) is a
// value, never an exception. Each class knows the exit code that a program ends with.
//
// Messages are one line: what happened, to which file, the system's error text, what the user can do.
// Threads: exceptions are immutable values.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "holdfast/base/exit_code.h"

namespace holdfast::inline v1 {

// Root of the hierarchy. Thrown itself only for defects (exit code 70).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::internal)
      : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Options that are unknown, contradictory or out of range; misuse of an interface by the caller.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, ExitCode::usage) {}
};

// The operating system refused an operation. `code` is its errno, `operation` the call ("fsync"),
// `path` what it was done to.
class IoError : public Error {
 public:
  IoError(std::string operation, std::string path, int code, const std::string& remedy = {});
  const std::string& operation() const noexcept { return operation_; }
  const std::string& path() const noexcept { return path_; }
  int code() const noexcept { return code_; }

 private:
  std::string operation_;
  std::string path_;
  int code_;
};

// Going on would lose work or silently change the run: other options, another model, nothing verifies.
class RefusedError : public Error {
 public:
  explicit RefusedError(const std::string& message) : Error(message, ExitCode::refused) {}
};

// A newer attempt has claimed the run directory.
class SupersededError : public Error {
 public:
  explicit SupersededError(const std::string& message) : Error(message, ExitCode::superseded) {}
};

// There is no memory left for what was asked. Thrown where a std::bad_alloc would leave the library; making
// one takes no memory.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError();
};

// What a failure's text is when there is no memory for it: short enough for a std::string without an
// allocation.
inline constexpr char kOutOfMemory[] = "out of memory";

// error.what(), where a std::bad_alloc says so in words.
const char* what_of(const std::exception& error) noexcept;

// The text that `make` returns, or kOutOfMemory. Failures are told with it: the telling never fails.
template <class Make>
std::string text_or_out_of_memory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace holdfast::inline v1
