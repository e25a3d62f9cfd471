// Starts a program, its standard input, output and error where the caller wants them.
//
//   Redirections to;
//   to.open(1, "/dev/null", O_WRONLY);
//   const pid_t pid = spawn({"valgrind", "--version"}, to);
//
// Errors: spawn() returns -1 and sets errno. Threads: one thread per object.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::bench {

// What the child does with its descriptors, in this order.
class Redirections {
 public:
  Redirections() { ::posix_spawn_file_actions_init(&actions_); }
  ~Redirections() { ::posix_spawn_file_actions_destroy(&actions_); }
  Redirections(const Redirections&) = delete;
  Redirections& operator=(const Redirections&) = delete;

  // A file that this creates is the owner's alone.
  void open(int descriptor, const std::filesystem::path& file, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, descriptor, file.c_str(), flags, 0600);
  }
  // The same number twice: exec does not close that descriptor.
  void copy(int from, int to) { ::posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// The program command[0], which is looked for in PATH, with the arguments behind it.
inline pid_t spawn(const std::vector<std::string>& command, const Redirections& redirections) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, words[0], redirections.get(), nullptr, words.data(), environ);
  if (failed == 0) return pid;
  errno = failed;
  return -1;
}

}  // namespace holdfast::bench
