// A program that is asked one line at a time over pipes, and answers one line each.
//
// What it writes to standard error is kept in a file; its last line is part of the message when it dies.
// Errors: Error naming the program. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::bench {

class Child {
 public:
  // `errors`: where its standard error goes.
  Child(const std::vector<std::string>& command, std::filesystem::path errors);
  ~Child();  // closes its standard input and waits; kills it when that takes too long
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Its next line; waits for ten minutes at most.
  std::string read_line();
  std::string ask(const std::string& line);

 private:
  [[noreturn]] void fail(const std::string& what);

  std::string program_;
  std::filesystem::path errors_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace holdfast::bench
