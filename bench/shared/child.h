// A program that is asked one line at a time over pipes, and answers one line each.
//
// What it writes to standard error is kept in a file; its last line is part of the message when it dies.
// Errors: Error naming the program. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace holdfast::bench {

struct ChildOptions {
  std::filesystem::path errors;                              // where its standard error goes
  std::chrono::seconds patience = std::chrono::minutes(10);  // for one answer
  // Called twice a second while an answer is waited for; may throw to end the waiting.
  std::function<void()> meanwhile = {};
  int inherited = -1;  // a descriptor that it gets, under its number
};

class Child {
 public:
  Child(const std::vector<std::string>& command, ChildOptions options);
  ~Child();  // closes its standard input and waits; kills it when that takes too long
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string read_line();
  std::string ask(const std::string& line);

 private:
  [[noreturn]] void fail(const std::string& what);

  std::string program_;
  ChildOptions options_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace holdfast::bench
