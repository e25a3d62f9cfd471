#include "holdfast/mirror/rclone_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/mirror/home.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// As in pace.cc: while rclone runs, only pace_.poll() serves the supervisor.
constexpr int kPollMs = 100;
constexpr std::size_t kMostSaid = 4096;
constexpr int kPipeBytes = 1 << 20;  // the most that Linux gives a user: fewer wake-ups for a large copy

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw HomeError(std::string("cannot make a pipe for rclone: ") + std::strerror(errno));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
};

// The running program. The destructor kills it.
class Child {
 public:
  explicit Child(pid_t id) : id_(id) {}
  ~Child() {
    if (ended_) return;
    kill(id_, SIGKILL);
    while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int wait() {
    int status = 0;
    pid_t reaped = 0;
    while ((reaped = waitpid(id_, &status, 0)) < 0 && errno == EINTR) {
    }
    ended_ = true;
    if (reaped < 0)
      throw HomeError("nobody knows how rclone ended: this program ignores SIGCHLD, or reaps all children");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  const pid_t id_;
  bool ended_ = false;
};

// Between fork and exec only calls that are safe there.
[[noreturn]] void become(char* const* words, int input, int output, int error, pid_t parent) {
  // Nothing may go on with an upload when the mirror that owns HOME is dead.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent died before prctl().
  if (getppid() != parent) _exit(128 + SIGKILL);
  setpgid(0, 0);  // a Ctrl-C reaches the mirror alone, which decides about the copy in flight
  // The mirror blocks signals, and exec would keep that.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // exec would keep an ignored signal ignored.
  signal(SIGPIPE, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  execvp(words[0], words);
  // The codes by which shells tell a missing program from one that cannot be executed.
  _exit(errno == ENOENT ? 127 : 126);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\r\n \t");
  if (end == std::string::npos) return {};
  const std::size_t before = text.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return printable(text.substr(begin, end - begin + 1), 400);
}

}  // namespace

RcloneEnd RcloneProgram::run(const std::vector<std::string>& arguments, const std::string& input,
                             const std::function<void(std::span<const std::byte>)>& out) const {
  return run(arguments, input, out, false);
}

RcloneEnd RcloneProgram::run_limited(std::vector<std::string> arguments) const {
  if (pace_.limit() <= 0) return run(arguments);
  // rclone's unit without a letter is KiB.
  // At least 1, because 0 means no limit to rclone.
  arguments.insert(arguments.begin(),
                   {"--bwlimit", std::to_string(std::max<std::int64_t>(
                                     1, static_cast<std::int64_t>(pace_.limit() * 1e6 / 1024)))});
  return run(arguments, {}, {}, true);
}

RcloneEnd RcloneProgram::run(const std::vector<std::string>& arguments, const std::string& input,
                             const std::function<void(std::span<const std::byte>)>& out, bool limited) const {
  Pipe in;
  Pipe output;
  Pipe error;
  // Before fork(): in the child of a program with threads nothing may be allocated.
  std::vector<std::string> words{"rclone"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t id = fork();
  if (id == 0) become(pointers.data(), in.ends[0], output.ends[1], error.ends[1], parent);
  if (id < 0) throw HomeError(std::string("cannot start rclone: ") + std::strerror(errno));
  Child child(id);
  in.close_end(0);
  output.close_end(1);
  error.close_end(1);
  // A claim is short, so a pipe holds it. The program may end before it reads, as a shell does that knows its
  // answer: SIGPIPE would then end this process, and the program's exit code says what happened.
  bool unread = false;
  if (!input.empty()) {
    struct sigaction ignore {};
    struct sigaction before {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before);
    const ssize_t written = write(in.ends[1], input.data(), input.size());
    sigaction(SIGPIPE, &before, nullptr);
    unread = written != static_cast<ssize_t>(input.size());
  }
  in.close_end(1);

  std::string said;
  fcntl(output.ends[0], F_SETPIPE_SZ, kPipeBytes);  // best effort
  std::vector<std::byte> buffer(kPipeBytes / 4);    // stays in the processor's cache
  SteadyTime heard = pace_.clock().now();
  while (output.ends[0] >= 0 || error.ends[0] >= 0) {
    std::array<pollfd, 2> waiting{{{.fd = output.ends[0], .events = POLLIN, .revents = 0},
                                   {.fd = error.ends[0], .events = POLLIN, .revents = 0}}};
    ::poll(waiting.data(), waiting.size(), kPollMs);
    pace_.poll();
    if (const auto patience = pace_.patience(); patience && pace_.clock().now() > heard + *patience)
      throw HomeError("rclone " + arguments.front() + " has not answered for " + format_duration(*patience));
    if (limited && pace_.limit() <= 0) {
      kill(id, SIGUSR2);  // rclone's toggle of its limit
      limited = false;
    }
    for (std::size_t which = 0; which < waiting.size(); ++which) {
      if (waiting[which].revents == 0) continue;
      Pipe& pipe = which == 0 ? output : error;
      const ssize_t got = ::read(pipe.ends[0], buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        pipe.close_end(0);
      } else if (which == 0) {
        heard = pace_.clock().now();
        if (out) out(std::span<const std::byte>(buffer).first(static_cast<std::size_t>(got)));
      } else {
        said.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(got));
        // The last lines say why it failed, and a program in trouble may write much.
        if (said.size() > kMostSaid) said.erase(0, said.size() - kMostSaid);
      }
    }
  }
  RcloneEnd end{.code = child.wait(), .said = last_line(said)};
  if (end.code == 127) end.said = "the program rclone is not installed, or not in PATH";
  if (end.ok() && unread) throw HomeError("rclone takes no input");
  return end;
}

}}  // namespace holdfast::v0_2
