// Standard error, for the log. A pipe or a terminal whose reader does not read takes nothing more once it is
// full, and write(2) would hold its thread for as long. A log must not hold a training, so text that finds no
// room for 100 ms is lost, and told later. The 100 ms begin anew with each piece that finds room.
//
// A file on a mount that hangs still holds the thread: the system calls a file always ready. So may a
// terminal that this process cannot open (no /proc, another user's), and rarely such a pipe, when another
// process fills it between poll(2) and write(2).
// Errors: none. Text for a closed pipe is dropped. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// False for a pipe whose reader has ended, or a terminal that is gone: such a stream would end a command that
// is started with it at its first line. Async-signal-safe.
bool has_reader(int stream) noexcept;

class StderrWriter {
 public:
  // After a wait that found no room the next ones are not waited for, until the reader reads again.
  static constexpr Duration kPatience = std::chrono::milliseconds(100);

  // One write(2) for text that a pipe takes in one piece (4096 bytes), so lines of several ranks that share
  // standard error do not mix. False: the end of `text` is lost.
  bool write(std::string_view text) noexcept;
  // Whether write() would take something at once.
  static bool has_room() noexcept;

  // Counts lines that are lost, until told() says that the reader knows.
  void lose_line() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t lost_lines() const noexcept { return lost_.load(std::memory_order_relaxed); }
  void told(std::uint64_t lines) noexcept { lost_.fetch_sub(lines, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> unread_{false};  // the last wait found no room
  std::atomic<bool> torn_{false};    // the last line lacks its end
};

}}  // namespace holdfast::v0_2
