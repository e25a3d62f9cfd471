#include "holdfast/cli/launch/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A longer line is cut: a rank that writes no newline must not fill the memory.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;
// Timeout of one poll, so finish() takes effect within it.
constexpr int kLookMs = 100;

void write_all(int target, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(target, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      // O_NONBLOCK belongs to the open file, so another program at the same terminal may have set it.
      pollfd wait{.fd = target, .events = POLLOUT, .revents = 0};
      poll(&wait, 1, kLookMs);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void close_if(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

RankOutput::RankOutput(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    for (const int target : {STDOUT_FILENO, STDERR_FILENO}) {
      // Text in front would break a line of JSON; a rank names itself in it.
      const bool bare = target == STDERR_FILENO && log_is_json();
      const std::string prefix = bare ? std::string() : "[" + label + "] ";
      std::array<int, 2> ends{-1, -1};
      // O_CLOEXEC: a rank that inherits another's pipe keeps it open, and end-of-file never comes.
      if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        const int code = errno;
        for (Stream& stream : streams_) close_if(stream.read_end), close_if(stream.write_end);
        throw IoError("pipe", "the output of " + label, code, "raise `ulimit -n`");
      }
      streams_.push_back(
          {.read_end = ends[0], .write_end = ends[1], .target = target, .prefix = prefix, .line = {}});
    }
  }
}

RankOutput::~RankOutput() {
  finish();
  for (Stream& stream : streams_) close_if(stream.read_end), close_if(stream.write_end);
}

void RankOutput::begin() {
  for (Stream& stream : streams_) close_if(stream.write_end);
  thread_ = std::thread([this] { read_all(); });
}

// Prints only what has arrived: a process that a rank left behind may hold the pipe open for ever.
void RankOutput::finish() {
  finishing_ = true;
  if (thread_.joinable()) thread_.join();
}

void RankOutput::read_all() {
  std::array<char, kLongestLine> bytes{};
  for (;;) {
    std::vector<pollfd> waiting;
    // poll() passes over a stream that has ended, because its descriptor is negative.
    for (const Stream& stream : streams_)
      waiting.push_back({.fd = stream.read_end, .events = POLLIN, .revents = 0});
    // Read before poll(), so that what had come until then is still printed.
    const bool last_look = finishing_;
    const int ready = poll(waiting.data(), waiting.size(), last_look ? 0 : kLookMs);
    bool open = false;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = streams_[i];
      if (stream.read_end < 0) continue;
      open = true;
      if (ready <= 0 || waiting[i].revents == 0) continue;
      const ssize_t count = read(stream.read_end, bytes.data(), bytes.size());
      if (count > 0) {
        take(stream, bytes.data(), static_cast<std::size_t>(count));
      } else if (count == 0) {
        end(stream);
        close_if(stream.read_end);
      }
    }
    if (!open || (last_look && ready <= 0)) break;
  }
  for (Stream& stream : streams_) end(stream);
}

void RankOutput::take(Stream& stream, const char* bytes, std::size_t count) {
  stream.line.append(bytes, count);
  std::size_t begin = 0;
  for (;;) {
    const std::size_t newline = stream.line.find('\n', begin);
    const bool whole = newline != std::string::npos && newline - begin <= kLongestLine;
    if (!whole && stream.line.size() - begin <= kLongestLine) break;
    const std::size_t length = whole ? newline - begin : kLongestLine;
    // One write, so that this program's own log lines do not come between prefix and text.
    write_all(stream.target, stream.prefix + stream.line.substr(begin, length) + "\n");
    begin += length + (whole ? 1 : 0);
  }
  stream.line.erase(0, begin);
}

void RankOutput::end(Stream& stream) {
  if (stream.line.empty()) return;
  write_all(stream.target, stream.prefix + stream.line + "\n");
  stream.line.clear();
}

}}  // namespace holdfast::v0_2
