// Programs under test as children: started with captured output, signalled, waited for.
//
// Output goes to files in a folder, so that the output of a killed child remains. Errors: std::runtime_error
// if a child cannot be started. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace holdfast::test {

// A folder below $TMPDIR that the destructor removes.
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

std::string read_text(const std::filesystem::path& file);  // "" if it does not exist
void write_text(const std::filesystem::path& file, const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

struct Ended {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;
  std::string err;
  std::string last_line() const;  // of `out`
};

// The parts of a Subprocess, for callers that hold the child differently. Output goes to `folder`/out and
// `folder`/err. The child calls `prepare` before exec: async-signal-safe calls only.
pid_t start_program(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                    const std::filesystem::path& folder, const std::function<void()>& prepare = {});
// `status` as from waitpid().
Ended ended_with(int status, const std::filesystem::path& folder);

class Subprocess {
 public:
  // `environment` is added to the test's own. `prepare` as in start_program().
  Subprocess(std::vector<std::string> command, const std::map<std::string, std::string>& environment = {},
             const std::function<void()>& prepare = {});
  ~Subprocess();  // SIGKILL if it still runs
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  bool running();
  // Waits until `condition` holds. False if the child ended or `limit` passed before.
  bool wait_until(const std::function<bool()>& condition,
                  std::chrono::milliseconds limit = std::chrono::seconds(60));
  // Its output up to now.
  std::string out() const;
  std::string err() const;
  // Kills it after `limit`; the result's signal is then SIGKILL.
  Ended wait(std::chrono::milliseconds limit = std::chrono::seconds(120));

 private:
  bool reap(bool block);

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace holdfast::test
