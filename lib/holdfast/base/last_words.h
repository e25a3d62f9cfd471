// Ends a program after an error: one line on standard error, the same sentence for the launcher, and the exit
// code.
//
//   int main(int argc, char** argv) {
//     return holdfast::run([&] { return train(argc, argv); });
//   }
//
// run() calls last_words() for an exception. A program whose own catch block does more calls last_words()
// there.
//
// Errors: none; exceptions become exit codes. Text that cannot be written is dropped. Threads: any.
#pragma once

#include <exception>
#include <functional>
#include <string_view>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Returns the exit code: the Error's own, or 70 for other exceptions. Of those it prints only the first line,
// because c10 appends a stack trace. A program that sets CheckpointerOptions::notices.exit_code_interrupted
// passes that code here too, because a lost rank counts as an interruption.
HOLDFAST_EXPORT int last_words(const std::exception& error,
                               int exit_code_interrupted = static_cast<int>(ExitCode::interrupted)) noexcept;

// The body's exit code, or last_words() of its exception. Without a catch, the same error would end the
// program with std::terminate (134), which tells a launcher nothing about whether to start again.
HOLDFAST_EXPORT int run(const std::function<int()>& body,
                        int exit_code_interrupted = static_cast<int>(ExitCode::interrupted)) noexcept;

// torchrun names a file for each process (TORCHELASTIC_ERROR_FILE) and prints its content if that process
// fails. Without the file, torchrun shows only a number for a program that is not written in Python. The
// format is the one of torch's `record` decorator.
// Writes only the launcher's file. A launcher reports the first sentence that it reads, so call this once.
HOLDFAST_EXPORT void tell_launcher(std::string_view sentence) noexcept;

}}  // namespace holdfast::v0_2
