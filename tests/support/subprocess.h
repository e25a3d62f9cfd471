// Programs under test as children: started with captured output, signalled, waited for.
//
// Output goes to files in a folder of the test's own, so that a child that is killed leaves what it wrote.
// Errors: std::runtime_error when a child cannot be started. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace holdfast::test {

// A folder below $TMPDIR that goes away with the object.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& beneath = {});
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& file);  // "" when it is not there
void write_text(const std::filesystem::path& file, const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

struct Ended {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;
  std::string err;
  std::string last_line() const;  // of `out`
};

// The pieces of a Subprocess, for who needs to hold its child differently. Output goes to `folder`/out and
// `folder`/err; `prepare` runs in the child before the program does: async-signal-safe calls only.
pid_t start_program(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                    const std::filesystem::path& folder, const std::function<void()>& prepare = {});
// `status` as waitpid() gives it.
Ended ended_with(int status, const std::filesystem::path& folder);

class Subprocess {
 public:
  // `environment` is added to the test's own.
  Subprocess(std::vector<std::string> command, const std::map<std::string, std::string>& environment = {});
  ~Subprocess();  // SIGKILL when still running
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  bool running();
  // Waits until `condition` holds; false when the child ended or `limit` passed first.
  bool wait_until(const std::function<bool()>& condition,
                  std::chrono::milliseconds limit = std::chrono::seconds(60));
  // What it has written so far.
  std::string out() const;
  std::string err() const;
  // After `limit` it is killed, and the result's signal is SIGKILL.
  Ended wait(std::chrono::milliseconds limit = std::chrono::seconds(120));

 private:
  bool reap(bool block);

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace holdfast::test
