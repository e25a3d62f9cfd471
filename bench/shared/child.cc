#include "child.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "holdfast/base/error.h"
#include "spawn.h"

namespace holdfast::bench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Child::Child(const std::vector<std::string>& command, ChildOptions options)
    : program_(command[0]), options_(std::move(options)) {
  ::signal(SIGPIPE, SIG_IGN);  // one that has died is an error with words
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw IoError("pipe2", program_, errno);
  Redirections to;
  to.copy(in[0], 0);
  to.copy(out[1], 1);
  to.open(2, options_.errors, O_WRONLY | O_CREAT | O_TRUNC);
  if (options_.inherited >= 0) to.copy(options_.inherited, options_.inherited);
  pid_ = spawn(command, to);
  const int failed = pid_ < 0 ? errno : 0;
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (failed != 0) {
    ::close(to_);
    ::close(from_);
    throw IoError("start", program_, failed);
  }
}

Child::~Child() {
  ::close(to_);
  const auto limit = Clock::now() + std::chrono::seconds(5);
  while (!ended()) {
    if (Clock::now() > limit) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::close(from_);
}

std::string Child::read_line() {
  const auto limit = Clock::now() + options_.patience;
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (options_.meanwhile) options_.meanwhile();
    pollfd ready{from_, POLLIN, 0};
    const int found = ::poll(&ready, 1, 500);
    if (found < 0 && errno != EINTR) fail(std::string("cannot be waited for"));
    if (found <= 0) {
      if (Clock::now() > limit) fail("gave no answer for too long");
      continue;
    }
    char piece[4096];
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count == 0) fail("ended early");
    if (count > 0) buffer_.append(piece, static_cast<std::size_t>(count));
  }
}

std::string Child::ask(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(to_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) fail("ended early");
  return read_line();
}

bool Child::ended() {
  if (pid_ >= 0 && ::waitpid(pid_, &status_, WNOHANG) != 0) pid_ = -1;
  return pid_ < 0;
}

void Child::finish() {
  if (pid_ >= 0) ::waitpid(pid_, &status_, 0);
  pid_ = -1;
  if (status_ != 0) fail("failed");
}

void Child::fail(const std::string& what) {
  std::string last;
  std::ifstream in(options_.errors);
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(' ') != std::string::npos) last = line;
  }
  throw Error(program_ + " " + what + (last.empty() ? "" : ": " + last));
}

}  // namespace holdfast::bench
