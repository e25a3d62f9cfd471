// While it lives, this process can open `more` files and no others.
//
// Threads: one at a time; the limit is the process's.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <stdexcept>

namespace holdfast::test {

class NoMoreFiles {
 public:
  explicit NoMoreFiles(int more = 0) {
    const int next = dup(STDERR_FILENO);  // the lowest number that is free
    if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &before_) != 0) fail();
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next + more);
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) fail();
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  static void fail() { throw std::runtime_error("the limit of open files cannot be set"); }
  rlimit before_{};
};

}  // namespace holdfast::test
