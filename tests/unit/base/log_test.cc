#include "holdfast/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/system/stderr_writer.h"
#include "holdfast/base/text.h"

namespace holdfast { namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class Log : public testing::Test {
 protected:
  Log() { set_log_level(LogLevel::info); }
  ~Log() override {
    set_log_rank(0, 1);
    unsetenv("HOLDFAST_LOG");
    unsetenv("HOLDFAST_LOG_FORMAT");
    configure_log();
    show_log_times(false);
    set_log_run("");
  }
};

TEST_F(Log, OneCalmLineALevel) {
  CaptureStderr();
  log_debug("not shown");
  log_info("resuming at step {}", 1200);
  log_warning("disk is {} % full", 97);
  log_error(std::string("fsync /x: no"));
  EXPECT_EQ(GetCapturedStderr(),
            "holdfast: resuming at step 1200\nholdfast: warning: disk is 97 % full\nholdfast: error: fsync "
            "/x: no\n");
}

TEST_F(Log, FinishedTextIsNotAFormat) {
  CaptureStderr();
  log_info("{} %v {oops");
  EXPECT_EQ(GetCapturedStderr(), "holdfast: {} %v {oops\n");
}

TEST_F(Log, EveryKindOfArgument) {
  CaptureStderr();
  log_info("{} {} {} {:.2f} {} {} {{}}", true, -1, std::size_t{7}, 1.0f / 3, std::filesystem::path("/mnt/x"),
           "text");
  EXPECT_EQ(GetCapturedStderr(), "holdfast: true -1 7 0.33 /mnt/x text {}\n");
}

TEST_F(Log, ANumberIsTheShortestTextThatReadsBackAsIt) {
  const auto text = [](double value) { return format_log("{}", {value}); };
  EXPECT_EQ(text(0), "0");
  EXPECT_EQ(text(-0.0), "-0");
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(0.1f), "0.10000000149011612");
  EXPECT_EQ(text(100000), "100000");
  EXPECT_EQ(text(1234567890123456), "1234567890123456");
  EXPECT_EQ(text(-1e16), "-1e+16");
  EXPECT_EQ(text(0.0001), "0.0001");
  EXPECT_EQ(text(0.00001), "1e-05");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(text(-std::numeric_limits<double>::quiet_NaN()), "-nan");
  EXPECT_EQ(format_log("{}", {std::numeric_limits<std::int64_t>::min()}), "-9223372036854775808");
  EXPECT_EQ(format_log("{}", {std::numeric_limits<std::uint64_t>::max()}), "18446744073709551615");
}

TEST_F(Log, AFieldSaysTheDigitsAfterThePoint) {
  EXPECT_EQ(format_log("{:.0f} {:.1f} {:.2f}", {0.5, 0.25, 1e6}), "0 0.2 1000000.00");
  EXPECT_EQ(format_log("{:.9f}", {std::numeric_limits<double>::lowest()}).size(), 1 + 309 + 10u);
  EXPECT_EQ(format_log("{:.3f}", {std::numeric_limits<double>::quiet_NaN()}), "nan");
}

TEST_F(Log, AFormatThatCannotBeFilledStandsAsItIs) {
  for (const char* format : {"{:d}", "{0}", "{", "}", "a } b", "{:.1f", "{:.10f}", "{} {}", "{:.1f}"}) {
    EXPECT_EQ(format_log(format, {"text"}), format);
  }
  EXPECT_EQ(format_log("{}", {"a", "b"}), "a") << "more arguments than fields";
  EXPECT_EQ(format_log("{{}} {{{}}}", {"a"}), "{} {a}");
}

TEST_F(Log, SeveralRanksAreNamed) {
  set_log_rank(2, 4);
  CaptureStderr();
  log_info("hello");
  EXPECT_EQ(GetCapturedStderr(), "holdfast[rank 2]: hello\n");
}

TEST_F(Log, LevelComesFromTheEnvironment) {
  setenv("HOLDFAST_LOG", "warning", 1);
  configure_log();
  show_log_times(false);
  CaptureStderr();
  log_info("quiet");
  log_warning("loud");
  EXPECT_EQ(GetCapturedStderr(), "holdfast: warning: loud\n");
  setenv("HOLDFAST_LOG", "chatty", 1);
  EXPECT_THROW(configure_log(), UsageError);
  set_log_level(LogLevel::off);
  CaptureStderr();
  log_error("gone");
  EXPECT_EQ(GetCapturedStderr(), "");
}

// Where nobody watches, a line says when it was written.
TEST_F(Log, ConfiguredLinesBeginWithTheTimeOutsideATerminal) {
  configure_log();
  set_log_rank(1, 2);
  CaptureStderr();
  log_warning("disk is full");
  const std::string text = GetCapturedStderr();
  ASSERT_GT(text.size(), 21u);
  EXPECT_TRUE(parse_utc(text.substr(0, 20))) << text;
  EXPECT_EQ(text.substr(20), " holdfast[rank 1]: warning: disk is full\n");
}

TEST_F(Log, JsonLinesAreObjectsWhateverTheMessage) {
  setenv("HOLDFAST_LOG_FORMAT", "json", 1);
  configure_log();
  set_log_rank(1, 2);
  set_log_run("/mnt/\"run\"");
  CaptureStderr();
  log_warning("a \"quoted\" line\nand \x01 \x80 \u202e");
  print_line("a table");
  show_status_line("not an object");
  const std::string text = GetCapturedStderr();
  const std::size_t end = text.find('\n');
  const JsonValue line = parse_json(text.substr(0, end));
  EXPECT_TRUE(parse_utc(text_member(line, "time").value_or(""))) << text;
  EXPECT_EQ(text_member(line, "level"), "warning");
  EXPECT_EQ(integer_member(line, "rank"), 1);
  EXPECT_EQ(text_member(line, "run"), "/mnt/\"run\"");
  EXPECT_TRUE(text_member(line, "host"));
  EXPECT_EQ(text_member(line, "message").value_or("").rfind("a \"quoted\" line\nand \\x01", 0), 0u) << text;
  EXPECT_EQ(text_member(parse_json(text.substr(end + 1, text.size() - end - 2)), "message"), "a table")
      << text;
  setenv("HOLDFAST_LOG_FORMAT", "xml", 1);
  EXPECT_THROW(configure_log(), UsageError);
}

TEST_F(Log, TheStatusLineIsWipedAndDrawnAgainBelow) {
  CaptureStderr();
  show_status_line("step 1");
  log_info("saved");
  show_status_line("step 2");
  print_line("a table");
  clear_status_line();
  clear_status_line();
  print_line("end");
  EXPECT_EQ(
      GetCapturedStderr(),
      "\r\x1b[Kstep 1\r\x1b[Kholdfast: saved\nstep 1\r\x1b[Kstep 2\r\x1b[Ka table\nstep 2\r\x1b[Kend\n");
}

// Standard error is no terminal here, so 80 columns are assumed, and one stays free.
TEST_F(Log, TheStatusLineIsCutBetweenCharacters) {
  const auto shown = [](const std::string& text) {
    CaptureStderr();
    show_status_line(text);
    const std::string line = GetCapturedStderr();
    clear_status_line();
    return line.substr(line.find("\x1b[K") + 3);
  };
  const std::string fits(76, 'x');
  EXPECT_EQ(shown(fits + "…"), fits + "…") << "79 bytes";
  EXPECT_EQ(shown(fits + "x…y"), fits + "x");
  EXPECT_EQ(shown(std::string(100, 'x')), std::string(79, 'x'));
  EXPECT_EQ(shown(std::string(40, '\x80')).size(), 79u) << "an escaped byte takes four columns";
}

TEST_F(Log, LinesOfSeveralThreadsDoNotMix) {
  CaptureStderr();
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) log_info("thread {} line {} {}", t, i, std::string(50, 'x'));
      });
    }
  }
  const std::string text = GetCapturedStderr();
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size(); ++lines) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    EXPECT_EQ(line.rfind("holdfast: thread ", 0), 0u) << line;
    EXPECT_EQ(line.substr(line.size() - 50), std::string(50, 'x')) << line;
    at = end + 1;
  }
  EXPECT_EQ(lines, 800u);
}

// Standard error goes to a reader that reads when the test says so.
class ReadLog : public Log {
 protected:
  ReadLog() : before_(dup(STDERR_FILENO)) {}
  ~ReadLog() override {
    dup2(before_, STDERR_FILENO);
    close(before_);
    if (reader_ >= 0) close(reader_);
  }
  // Takes both over.
  void redirect(int reader, int writer) {
    reader_ = reader;
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    dup2(writer, STDERR_FILENO);
    close(writer);
  }
  // What is there, 4096 bytes at most.
  std::string read_some() const {
    std::array<char, 4096> buffer{};
    const ssize_t got = read(reader_, buffer.data(), buffer.size());
    return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
  std::string read_all() const {
    std::string text;
    for (std::string some; !(some = read_some()).empty();) text += some;
    return text;
  }
  // False: `work` is still busy after a long time. Then the reader reads until it ends.
  template <class Work>
  bool ends_unread(const Work& work) const {
    auto ended = std::async(std::launch::async, work);
    if (ended.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return true;
    while (ended.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) read_all();
    return false;
  }

 private:
  int reader_ = -1;
  int before_;
};

// A pipe of four pages.
class PipedLog : public ReadLog {
 protected:
  PipedLog() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    // The system rounds up to its own pages, which may have 64 KiB.
    EXPECT_GE(fcntl(ends[1], F_SETPIPE_SZ, 4 * 4096), 4 * 4096);
    size_ = static_cast<std::size_t>(fcntl(ends[1], F_GETPIPE_SZ));
    redirect(ends[0], ends[1]);
  }
  void fill() const {
    const std::string dots(size_, '.');
    EXPECT_EQ(write(STDERR_FILENO, dots.data(), size_), static_cast<ssize_t>(size_));
  }

  std::size_t size_ = 0;
};

TEST_F(PipedLog, AReaderThatDoesNotReadHoldsNobody) {
  fill();
  EXPECT_TRUE(ends_unread([] {
    for (int i = 0; i < 500; ++i) log_warning("line {}", i);  // 100 ms each would take too long
  }));
  EXPECT_TRUE(ends_unread([] { show_status_line("step 1"); }));
  clear_status_line();
  EXPECT_EQ(read_all(), std::string(size_, '.'));
  log_info("it reads again");
  log_info("and goes on");
  EXPECT_EQ(read_all(),
            "holdfast: warning: 500 lines of this log were lost because their reader did not read\n"
            "holdfast: it reads again\nholdfast: and goes on\n");
}

TEST_F(PipedLog, TheEndOfALongLineIsLostAlone) {
  EXPECT_TRUE(ends_unread([this] { log_info("{}", std::string(2 * size_, 'x')); }));
  const std::string begin = read_all();
  // A pipe of one large page counts as full when it holds one piece.
  ASSERT_GE(begin.size(), 4096u);
  EXPECT_LE(begin.size(), size_);
  EXPECT_EQ(begin, "holdfast: " + std::string(begin.size() - 10, 'x'));
  log_info("the next line");
  EXPECT_EQ(read_all(),
            "\nholdfast: warning: 1 line of this log was lost because its reader did not read\n"
            "holdfast: the next line\n");
}

TEST_F(PipedLog, LostLinesAreCountedInJsonAsWell) {
  setenv("HOLDFAST_LOG_FORMAT", "json", 1);
  configure_log();
  fill();
  EXPECT_TRUE(ends_unread([] {
    log_info("one");
    log_info("two");
  }));
  read_all();
  log_info("three");
  const std::string text = read_all();
  const std::size_t end = text.find('\n');
  const JsonValue first = parse_json(text.substr(0, end));
  EXPECT_EQ(text_member(first, "message").value_or("").rfind("2 lines of this log were lost", 0), 0u) << text;
  EXPECT_EQ(text_member(first, "level"), "warning");
  EXPECT_EQ(text_member(parse_json(text.substr(end + 1)), "message"), "three") << text;
}

// A line for which the reader takes longer in all than a log waits for room.
TEST_F(PipedLog, AReaderThatIsSlowGetsEveryByte) {
  using std::chrono::steady_clock;
  const std::string line(size_ + 12 * 4096, 'x');
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::string text;
    auto last = steady_clock::now();
    auto longest = steady_clock::duration::zero();  // from one read's begin to the next one's end
    auto ended = std::async(std::launch::async, [&] { log_info("{}", line); });
    while (ended.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
      const auto begin = steady_clock::now();
      // A pipe has room again when a whole page was read.
      for (long part = 0; part < sysconf(_SC_PAGESIZE); part += 4096) text += read_some();
      longest = std::max(longest, steady_clock::now() - std::exchange(last, begin));
    }
    longest = std::max(longest, steady_clock::now() - last);
    text += read_all();
    // On a busy machine this thread may have had no processor for longer than a log waits. Then the end may
    // be lost, and the next line says so.
    if (longest < StderrWriter::kPatience) {
      EXPECT_EQ(text, "holdfast: " + line + "\n");
      return;
    }
    log_info("next attempt");
    read_all();
  }
  GTEST_SKIP() << "this machine is too busy for a reader that reads each 100 ms";
}

// Such as a terminal with one place left for a line feed that needs two. Here it is an eventfd that is nearly
// full: always ready, but not for a number this large.
TEST_F(ReadLog, WhatIsReadyAndTakesNothingHoldsNobodyAndLosesText) {
  const int full = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_EQ(eventfd_write(full, std::numeric_limits<eventfd_t>::max() - 2), 0);
  redirect(dup(full), full);
  ASSERT_TRUE(StderrWriter::has_room());
  StderrWriter writer;
  const std::clock_t before = std::clock();
  EXPECT_FALSE(writer.write("8 bytes\n"));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 50) << "it sleeps while it waits";
  read_all();
  EXPECT_TRUE(writer.write("8 bytes\n"));
}

// Standard error is a terminal.
class TerminalLog : public ReadLog {
 protected:
  void SetUp() override {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    const bool unlocked = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0;
    const char* const name = unlocked ? ptsname(master) : nullptr;
    const int terminal = name != nullptr ? open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC) : -1;
    if (terminal >= 0) return redirect(master, terminal);
    if (master >= 0) close(master);
    GTEST_SKIP() << "no pseudoterminals here";
  }
};

// The sum of the numbers before each `words`.
std::size_t sum_before(const std::string& words, const std::string& text) {
  std::size_t sum = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) {
    sum += std::stoul(text.substr(text.rfind(' ', at - 1) + 1));
  }
  return sum;
}

// A terminal with some room is ready, though it has no room for the whole line.
TEST_F(TerminalLog, ATerminalThatNobodyReadsHoldsNobody) {
  std::size_t logged = 2000;
  const std::string line(100, 'x');
  EXPECT_TRUE(ends_unread([&] {
    for (std::size_t i = 0; i < logged; ++i) log_warning("1 {}", line);
  }));
  EXPECT_TRUE(ends_unread([] { show_status_line("step 1"); }));
  clear_status_line();

  // A terminal passes text on some time after the write, and the loss may be told in several lines.
  std::string text;
  std::size_t lost = 0;
  std::size_t whole = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    text += read_all();
    whole = sum_before(" " + line + "\r\n", text);
    lost = sum_before(" lines of this log were lost", text) + sum_before(" line of this log was lost", text);
    if (whole + lost >= logged || std::chrono::steady_clock::now() > end) break;
    log_info("1 {}", line);
    ++logged;
  }
  EXPECT_GT(lost, 0u);
  // More if a lost end was the line feed alone.
  EXPECT_GE(whole + lost, logged);
}

}}  // namespace holdfast
