#include "holdfast/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
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
  log_info("{:d} is no text", "text");
  EXPECT_EQ(GetCapturedStderr(), "holdfast: true -1 7 0.33 /mnt/x text {}\nholdfast: {:d} is no text\n");
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

// Standard error is a pipe of four pages, and its reader reads when the test says so.
class PipedLog : public Log {
 protected:
  static constexpr int kPipe = 4 * 4096;

  PipedLog() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader_ = ends[0];
    EXPECT_EQ(fcntl(ends[1], F_SETPIPE_SZ, kPipe), kPipe);
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    before_ = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  ~PipedLog() override {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(reader_);
  }
  static void fill() {
    const std::string dots(kPipe, '.');
    EXPECT_EQ(write(STDERR_FILENO, dots.data(), dots.size()), kPipe);
  }
  // All that the pipe holds.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = read(reader_, buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
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
  int before_ = -1;
};

TEST_F(PipedLog, AReaderThatDoesNotReadHoldsNobody) {
  fill();
  EXPECT_TRUE(ends_unread([] {
    for (int i = 0; i < 500; ++i) log_warning("line {}", i);  // 100 ms each would take too long
  }));
  EXPECT_TRUE(ends_unread([] { show_status_line("step 1"); }));
  clear_status_line();
  EXPECT_EQ(read_all(), std::string(kPipe, '.'));
  log_info("it reads again");
  log_info("and goes on");
  EXPECT_EQ(read_all(),
            "holdfast: warning: 500 lines of this log were lost because their reader did not read\n"
            "holdfast: it reads again\nholdfast: and goes on\n");
}

TEST_F(PipedLog, TheEndOfALongLineIsLostAlone) {
  EXPECT_TRUE(ends_unread([] { log_info("{}", std::string(2 * kPipe, 'x')); }));
  EXPECT_EQ(read_all(), "holdfast: " + std::string(kPipe - 10, 'x'));
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

// A line that is longer than the pipe, and a reader that only takes its time.
TEST_F(PipedLog, AReaderThatIsSlowGetsEveryByte) {
  std::string text;
  const std::string line(3 * kPipe, 'x');
  auto ended = std::async(std::launch::async, [&] { log_info("{}", line); });
  while (ended.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) text += read_all();
  EXPECT_EQ(text + read_all(), "holdfast: " + line + "\n");
}

}}  // namespace holdfast
