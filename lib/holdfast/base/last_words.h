// How a program ends with an error: one line on standard error, the same sentence to the launcher, and the
// exit code.
//
//   int main(int argc, char** argv) {
//     try {
//       return train(argc, argv);
//     } catch (const std::exception& error) {
//       return holdfast::last_words(error);
//     }
//   }
//
// torchrun names a file for each process (TORCHELASTIC_ERROR_FILE) and prints what it finds there when one
// has failed; without it a process of another language than Python is only a number. It is written as torch's
// own record decorator does.
//
// Errors: none; what cannot be written is dropped. Threads: any.
#pragma once

#include <exception>
#include <string_view>

#include "holdfast/base/exit_code.h"

namespace holdfast::inline v1 {

// Returns the exit code: an Error's own, else that of a defect (70). Of other exceptions the first line
// counts: c10 adds a stack trace. A program with CheckpointerOptions::exit_code_interrupted gives that here,
// too: a lost rank is an interruption.
int last_words(const std::exception& error,
               int exit_code_interrupted = static_cast<int>(ExitCode::interrupted)) noexcept;

// Only the launcher's part of it. The first sentence that a launcher reads counts; call it once.
void tell_launcher(std::string_view sentence) noexcept;

}  // namespace holdfast::inline v1
