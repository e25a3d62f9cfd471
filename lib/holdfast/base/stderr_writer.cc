#include "holdfast/base/stderr_writer.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace holdfast { inline namespace v0_2 {
namespace {

// A pipe that is ready has room for PIPE_BUF bytes, and more could block. A file takes all at once.
std::size_t piece_of(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  struct stat status {};
  const bool is_file = fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode);
  return is_file ? text.size() : PIPE_BUF;
}

}  // namespace

bool StderrWriter::wait_for_room(Duration limit) noexcept {
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    pollfd standard_error{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(time_until(end, Clock::real().now())).count();
    const int ready = ::poll(&standard_error, 1, static_cast<int>(left));
    if (ready >= 0) return ready > 0;
    // Without an answer, as if there were room.
    if (errno != EINTR) return true;
  }
}

bool StderrWriter::write(std::string_view text) noexcept {
  const SteadyTime end = Clock::real().now() + (unread_ ? Duration::zero() : kPatience);
  for (bool begun = false; !text.empty();) {
    if (!wait_for_room(time_until(end, Clock::real().now()))) {
      unread_ = true;
      if (begun) torn_ = true;
      return false;
    }
    // What comes next must not look like the end of that line.
    const bool ends_line = torn_.exchange(false);
    const std::string_view piece = ends_line ? std::string_view("\n") : text.substr(0, piece_of(text));
    const ssize_t written = ::write(STDERR_FILENO, piece.data(), piece.size());
    const int error = errno;
    if (written <= 0 && ends_line) torn_ = true;
    if (written < 0 && (error == EINTR || error == EAGAIN) && Clock::real().now() < end) continue;
    // Nobody will ever read it.
    if (written <= 0) return true;
    unread_ = false;
    if (ends_line) continue;
    begun = true;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}}  // namespace holdfast::v0_2
