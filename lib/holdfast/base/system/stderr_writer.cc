#include "holdfast/base/system/stderr_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace holdfast { inline namespace v0_2 {
namespace {

// Standard error, for one text. A terminal is ready as soon as it has any room, and a write(2) that may block
// then waits for room for all. O_NONBLOCK on standard error itself would change it for every process that
// shares it; so a pipe or terminal is opened anew. For each text, because standard error may be redirected
// meanwhile, and a log line is rare.
class Output {
 public:
  Output() noexcept {
    struct stat status {};
    if (fstat(STDERR_FILENO, &status) != 0) return;
    is_file_ = S_ISREG(status.st_mode);
    is_socket_ = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode) && isatty(STDERR_FILENO) != 1) return;
    // Fails without /proc, for the terminal of another user and for a pipe that nobody reads. O_APPEND, in
    // case another thread has just put a file there.
    own_ = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_APPEND | O_NOCTTY | O_CLOEXEC);
  }
  ~Output() {
    if (own_ >= 0) ::close(own_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int fd() const noexcept { return own_ >= 0 ? own_ : STDERR_FILENO; }
  // A pipe that is ready has room for PIPE_BUF bytes, and more could block. A file takes all at once.
  std::size_t piece() const noexcept { return is_file_ ? std::string_view::npos : PIPE_BUF; }
  ssize_t write(std::string_view text) const noexcept {
    if (is_socket_) return ::send(fd(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return ::write(fd(), text.data(), text.size());
  }

 private:
  int own_ = -1;
  bool is_file_ = false;
  bool is_socket_ = false;
};

bool wait_for_room(int fd, Duration limit) noexcept {
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    pollfd output{.fd = fd, .events = POLLOUT, .revents = 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(time_until(end, Clock::real().now())).count();
    const int ready = ::poll(&output, 1, static_cast<int>(left));
    if (ready >= 0) return ready > 0;
    // Without an answer, as if there were room.
    if (errno != EINTR) return true;
  }
}

}  // namespace

bool has_reader(int stream) noexcept {
  pollfd output{.fd = stream, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) <= 0 || (output.revents & (POLLERR | POLLHUP)) == 0;
}

bool StderrWriter::has_room() noexcept { return wait_for_room(STDERR_FILENO, Duration::zero()); }

bool StderrWriter::write(std::string_view text) noexcept {
  const Output output;
  SteadyTime end = Clock::real().now() + (unread_ ? Duration::zero() : kPatience);
  for (bool begun = false; !text.empty();) {
    if (wait_for_room(output.fd(), time_until(end, Clock::real().now()))) {
      // What comes next must not look like the end of that line.
      const bool ends_line = torn_.exchange(false);
      const std::string_view piece = ends_line ? std::string_view("\n") : text.substr(0, output.piece());
      const ssize_t written = output.write(piece);
      const int error = errno;
      if (written > 0) {
        unread_ = false;
        end = Clock::real().now() + kPatience;
        if (!ends_line) {
          begun = true;
          text.remove_prefix(static_cast<std::size_t>(written));
        }
        continue;
      }
      if (ends_line) torn_ = true;
      // Nobody will ever read it.
      if (written == 0 || (error != EAGAIN && error != EINTR)) return true;
    }
    if (Clock::real().now() >= end) {
      unread_ = true;
      if (begun) torn_ = true;
      return false;
    }
    // A terminal may be ready and yet have too little room, so waiting for room alone would spin.
    ::poll(nullptr, 0, 1);
  }
  return true;
}

}}  // namespace holdfast::v0_2
