// A child program that answers one line for each line that it gets, over pipes.
//
// Its standard error goes to a file; if it dies, the last line of that file is part of the message. Errors:
// Error, which names the program. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace holdfast::bench {

struct ChildOptions {
  std::filesystem::path errors;                              // file for its standard error
  std::chrono::seconds patience = std::chrono::minutes(10);  // longest wait for one answer
  // Called twice a second during a wait; may throw to end it.
  std::function<void()> meanwhile = {};
  int inherited = -1;  // a descriptor that the child inherits under the same number; -1: none
};

class Child {
 public:
  Child(const std::vector<std::string>& command, ChildOptions options);
  ~Child();  // closes its standard input and waits; kills it after 5 s
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string read_line();
  std::string ask(const std::string& line);
  bool ended();
  // Waits for its end, however long that takes. Error unless it exits with 0.
  void finish();

 private:
  [[noreturn]] void fail(const std::string& what);

  std::string program_;
  ChildOptions options_;
  pid_t pid_ = -1;  // -1: waited for
  int status_ = 0;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace holdfast::bench
