#include "holdfast/cli/child/limited_read.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

[[noreturn]] void work_in_child(int from, int to, const std::function<std::string()>& read) {
  close(from);  // otherwise it would wait for itself to read, once its parent is gone
  // It ends at its next write, once nobody reads any more.
  std::signal(SIGPIPE, SIG_DFL);
  const std::string text = read();
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) _exit(1);
    if (written > 0) at += static_cast<std::size_t>(written);
  }
  _exit(0);  // not exit(): buffered output is the parent's
}

// False: the time is over.
bool read_all(int from, std::string& text, SteadyTime end) {
  std::array<char, 4096> piece{};
  while (true) {
    const Duration left = end - Clock::real().now();
    if (left <= Duration::zero()) return false;
    pollfd look{.fd = from, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = poll(&look, 1, static_cast<int>(ms));
    if (ready <= 0) continue;
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::optional<std::string> LimitedRead::run(Duration limit, const std::function<std::string()>& read) {
  // Not a second process beside one that still hangs.
  if (hanging_ > 0 && waitpid(hanging_, nullptr, WNOHANG) == 0) return std::nullopt;
  hanging_ = -1;
  const SteadyTime end = Clock::real().now() + limit;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("pipe2", "", errno);
  const pid_t child = fork();
  // Kept now, because the calls below may change it.
  const int refused = errno;
  if (child == 0) work_in_child(ends[0], ends[1], read);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    throw IoError("fork", "", refused);
  }
  std::string text;
  const bool done = read_all(ends[0], text, end);
  close(ends[0]);
  if (!done) {
    // It may hang in the kernel, so nobody waits for it here.
    kill(child, SIGKILL);
    hanging_ = child;
    return std::nullopt;
  }
  // It has closed the pipe, so it is on its way out of _exit().
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}}  // namespace holdfast::v0_2
