#include "support/child_process.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace holdfast::test {

ChildProcess::ChildProcess(const std::function<int()>& work, bool terminal) {
  std::fflush(nullptr);
  std::array<int, 2> ends{-1, -1};
  if (!terminal && pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  id_ = terminal ? forkpty(&channel_, nullptr, nullptr, nullptr) : fork();
  if (id_ < 0) throw std::runtime_error("fork");
  if (id_ == 0) {
    alarm(30);
    if (!terminal) {
      const int nothing = dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0;
      close(ends[0]);
      close(ends[1]);
      if (nothing || close(STDIN_FILENO) != 0) _exit(99);
    }
    int code = 98;
    try {
      code = work();
    } catch (const std::exception& error) {
      say(std::string("exception: ") + error.what());
    }
    // Not exit(): the parent's objects are not ours to destroy.
    _exit(code);
  }
  if (!terminal) {
    close(ends[1]);
    channel_ = ends[0];
  }
}

ChildProcess::~ChildProcess() {
  if (id_ > 0) {
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  if (channel_ >= 0) close(channel_);
}

bool ChildProcess::read_some(int timeout_ms) {
  pollfd event{.fd = channel_, .events = POLLIN, .revents = 0};
  const int ready = poll(&event, 1, timeout_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return true;
  std::array<char, 4096> buffer{};
  // A pty whose other end is closed gives EIO: the end, too.
  const ssize_t count = read(channel_, buffer.data(), buffer.size());
  if (count <= 0) return false;
  output_.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

bool ChildProcess::wait_for_output(const std::string& text) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (output_.find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || !read_some(100))
      return output_.find(text) != std::string::npos;
  }
  return true;
}

void ChildProcess::send(int signal) const { kill(id_, signal); }

void ChildProcess::type(const std::string& keys) const {
  if (write(channel_, keys.data(), keys.size()) < 0) throw std::runtime_error("write to the terminal");
}

ChildResult ChildProcess::wait() {
  while (read_some(1000)) {
  }
  int status = 0;
  waitpid(id_, &status, 0);
  id_ = -1;
  ChildResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.output = output_;
  return result;
}

bool has_terminals() {
  int ours = -1;
  int theirs = -1;
  if (openpty(&ours, &theirs, nullptr, nullptr, nullptr) != 0) return false;
  close(ours);
  close(theirs);
  return true;
}

void say(const std::string& line) {
  const std::string text = line + '\n';
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(97);
}

}  // namespace holdfast::test
