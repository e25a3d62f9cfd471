// The exceptions that end a run. An expected outcome (no checkpoint yet, a rejected candidate, a notice) is a
// value, never an exception. Each class knows the exit code that a program should return.
//
// A message is one line: what happened, to which file, the system's error text, what the user can do.
// Threads: exceptions are immutable values.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Root of the hierarchy. The library throws this class itself only for defects (exit code 70).
class HOLDFAST_EXPORT Error : public std::runtime_error {
 public:
  // The constructor makes control characters in `message` printable, because a file name may hold any byte.
  explicit Error(const std::string& message, ExitCode code = ExitCode::internal);
  ExitCode exit_code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Unknown, contradictory or out-of-range options, or misuse of an interface by the caller.
class HOLDFAST_EXPORT UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, ExitCode::usage) {}
};

// The operating system refused an operation. `operation` is the call ("fsync"), `path` the file, `code` the
// errno. `remedy` replaces the usual advice for that errno.
class HOLDFAST_EXPORT IoError : public Error {
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

// To continue would lose work or silently change the run: other options, another model, nothing verifies.
class HOLDFAST_EXPORT RefusedError : public Error {
 public:
  explicit RefusedError(const std::string& message) : Error(message, ExitCode::refused) {}
};

// A newer attempt has claimed the run directory.
class HOLDFAST_EXPORT SupersededError : public Error {
 public:
  explicit SupersededError(const std::string& message) : Error(message, ExitCode::superseded) {}
};

// Exit code 74. The library throws it where a std::bad_alloc would leave it. Its constructor allocates
// nothing.
class HOLDFAST_EXPORT OutOfMemoryError : public Error {
 public:
  OutOfMemoryError();
};

// Replaces a message for which there is no memory. It fits into a std::string without an allocation.
inline constexpr char kOutOfMemory[] = "out of memory";

// Returns error.what(), but kOutOfMemory for a std::bad_alloc.
HOLDFAST_EXPORT const char* what_of(const std::exception& error) noexcept;

// Returns the text that `make` returns, or kOutOfMemory. Code that reports a failure uses it, so that the
// report itself cannot fail.
template <class Make>
std::string text_or_out_of_memory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}}  // namespace holdfast::v0_2
