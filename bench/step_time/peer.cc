#include "peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast::bench {

Peer::Peer(const std::vector<std::string>& command, std::filesystem::path errors)
    : errors_(std::move(errors)) {
  ::signal(SIGPIPE, SIG_IGN);  // a peer that has died is an error of its own
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    throw IoError("pipe2", command[0], errno);
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int failed = ::posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (failed != 0) {
    ::close(to_);
    ::close(from_);
    throw IoError("start", command[0], failed);
  }
  try {
    const auto hello = nlohmann::json::parse(read_line(), nullptr, false);
    if (!hello.is_object() || !hello.contains("torch")) fail();
    version_ = hello["torch"].get<std::string>();
  } catch (...) {
    ::close(to_);
    ::close(from_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    throw;
  }
}

Peer::~Peer() {
  ::close(to_);  // its end of file: it leaves
  ::close(from_);
  ::waitpid(pid_, nullptr, 0);
}

Window Peer::steps(int count) {
  const std::string line = std::to_string(count) + "\n";
  if (::write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) fail();
  const auto answer = nlohmann::json::parse(read_line(), nullptr, false);
  if (!answer.is_object() || !answer.contains("seconds")) fail();
  // A loss that is not a number comes as a word that is no JSON, and failed above.
  return {.seconds = answer["seconds"].get<double>(), .loss = answer["loss"].get<double>()};
}

std::string Peer::read_line() {
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char piece[4096];
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail();
    buffer_.append(piece, static_cast<std::size_t>(count));
  }
}

void Peer::fail() {
  std::string last;
  std::ifstream in(errors_);
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(' ') != std::string::npos) last = line;
  }
  throw Error("the peer in Python ended early" + (last.empty() ? "" : ": " + last));
}

}  // namespace holdfast::bench
