#include "support/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace holdfast::test {
namespace {

constexpr std::chrono::milliseconds kPoll(1);

int open_output(const std::filesystem::path& file) {
  return ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

TemporaryFolder::TemporaryFolder(const std::filesystem::path& beneath) {
  const auto base = beneath.empty() ? std::filesystem::temp_directory_path() : beneath;
  std::string name = (base / "holdfast-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("mkdtemp " + name + ": " + std::strerror(errno));
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string Ended::last_line() const {
  const auto lines = lines_of(out);
  return lines.empty() ? "" : lines.back();
}

pid_t start_program(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                    const std::filesystem::path& folder, const std::function<void()>& prepare) {
  // Allocates everything before fork: the child may only call async-signal-safe functions.
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!environment.contains(text.substr(0, text.find('=')))) settings.push_back(text);
  }
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  std::vector<char*> variables;
  variables.reserve(settings.size() + 1);
  for (auto& setting : settings) variables.push_back(setting.data());
  variables.push_back(nullptr);
  const int out = open_output(folder / "out");
  const int err = open_output(folder / "err");
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(in, 0);
    ::dup2(out, 1);
    ::dup2(err, 2);
    if (prepare) prepare();
    ::execve(arguments[0], arguments.data(), variables.data());
    ::_exit(127);
  }
  ::close(in);
  ::close(out);
  ::close(err);
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  return child;
}

// LibTorch 2.10's Gloo tells on standard output that its ranks have met.
std::string without_greetings(const std::string& text) {
  constexpr std::string_view kGreeting = "[Gloo] Rank ";
  if (text.find(kGreeting) == std::string::npos) return text;
  std::string rest;
  for (const std::string& line : lines_of(text)) {
    if (line.find(kGreeting) == std::string::npos) rest += line + "\n";
  }
  return rest;
}

Ended ended_with(int status, const std::filesystem::path& folder) {
  Ended ended;
  if (WIFSIGNALED(status)) {
    ended.signal = WTERMSIG(status);
  } else {
    ended.exit_code = WEXITSTATUS(status);
  }
  ended.out = without_greetings(read_text(folder / "out"));
  ended.err = read_text(folder / "err");
  return ended;
}

Subprocess::Subprocess(std::vector<std::string> command,
                       const std::map<std::string, std::string>& environment,
                       const std::function<void()>& prepare)
    : pid_(start_program(std::move(command), environment, folder_.path(), prepare)) {}

Subprocess::~Subprocess() {
  if (ended_ || pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  reap(true);
}

void Subprocess::send(int signal) const {
  if (!ended_) ::kill(pid_, signal);
}

bool Subprocess::reap(bool block) {
  if (ended_) return true;
  pid_t got = 0;
  do {
    got = ::waitpid(pid_, &status_, block ? 0 : WNOHANG);
  } while (got < 0 && errno == EINTR);
  ended_ = got != 0;
  return ended_;
}

bool Subprocess::running() { return !reap(false); }

bool Subprocess::wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (!running() || std::chrono::steady_clock::now() > end) return condition();
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::string Subprocess::out() const { return read_text(folder_.path() / "out"); }
std::string Subprocess::err() const { return read_text(folder_.path() / "err"); }

Ended Subprocess::wait(std::chrono::milliseconds limit) {
  if (!wait_until([this] { return !running(); }, limit)) {
    send(SIGKILL);
    reap(true);
  }
  return ended_with(status_, folder_.path());
}

}  // namespace holdfast::test
