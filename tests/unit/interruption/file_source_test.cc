// A notice file on a real disk, looked at with a clock that stands still.
#include "holdfast/interruption/file_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace {
std::atomic<bool> server_is_gone{false};
}

// In front of the C library's, for this program: a hard network mount without its server.
extern "C" int stat(const char* name, struct stat* found) {
  while (server_is_gone && std::strstr(name, "/far/") != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, name, found, 0));
}

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

class NoticeSource : public testing::Test {
 protected:
  NoticeSource() : path_(folder_.path() / "notice"), source_(path_, clock_) {
    testing::internal::CaptureStderr();
  }
  ~NoticeSource() override {
    if (!taken_) testing::internal::GetCapturedStderr();
  }

  // Every write has a time of its own, whatever the file system's grain.
  void put(const std::string& text) {
    write_text(path_, text);
    fs::last_write_time(path_, fs::file_time_type(std::chrono::seconds(++writes_)));
  }
  // Kinds of the news, in short.
  std::string news() {
    std::string kinds;
    for (const Notice& notice : source_.poll()) {
      EXPECT_EQ(notice.source, "file");
      EXPECT_FALSE(notice.text.empty());
      last_ = notice;
      switch (notice.kind) {
        case NoticeKind::checkpoint_now:
          kinds += "checkpoint ";
          break;
        case NoticeKind::at_risk:
          kinds += "risk ";
          break;
        case NoticeKind::stop:
          kinds += "stop ";
          break;
        case NoticeKind::deadline:
          kinds += "coming ";
          break;
        case NoticeKind::withdrawn:
          kinds += "withdrawn ";
          break;
        case NoticeKind::thawed:
          kinds += "thawed ";
          break;
      }
    }
    return kinds;
  }
  std::string log() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

  TemporaryFolder folder_;
  fs::path path_;
  FakeClock clock_;
  FileSource source_;
  Notice last_;

 private:
  int writes_ = 0;
  bool taken_ = false;
};

TEST_F(NoticeSource, NoFileIsNoNews) {
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "");
  EXPECT_EQ(source_.interval(), 1s);
  EXPECT_EQ(source_.name(), "file");
  EXPECT_EQ(log(), "");
}

TEST_F(NoticeSource, AWholeNoticeIsBelievedAtOnceAndToldOnce) {
  put(R"({"action": "terminate", "in_seconds": 90})");
  EXPECT_EQ(news(), "coming ");
  EXPECT_EQ(last_.deadline, clock_.now() + 90s);
  EXPECT_EQ(source_.interval(), 1s);
  clock_.advance(10s);
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "");
}

TEST_F(NoticeSource, TimesOfTheWallBecomeSteadyOnes) {
  put(R"({"time": ")" + format_utc(clock_.wall_now() + 61s) + R"("})");
  EXPECT_EQ(news(), "coming ");
  const Duration left = *last_.deadline - clock_.now();
  EXPECT_GT(left, 59s);  // the text has whole seconds
  EXPECT_LE(left, 61s);
  // The wall clock jumps: what was told stands, what is written anew is read by the new time.
  clock_.shift_wall(1h);
  EXPECT_EQ(news(), "");
  put(R"({"time": ")" + format_utc(clock_.wall_now() + 31s) + R"("})");
  EXPECT_EQ(news(), "coming ");
  EXPECT_LE(*last_.deadline - clock_.now(), 31s);
}

TEST_F(NoticeSource, AnEmptyFileIsBelievedAtTheSecondLook) {
  put("");
  EXPECT_EQ(news(), "");
  EXPECT_EQ(source_.interval(), 100ms);
  EXPECT_EQ(news(), "coming ");
  EXPECT_EQ(last_.deadline, std::nullopt);
  EXPECT_EQ(source_.interval(), 1s);
  EXPECT_EQ(news(), "");
}

TEST_F(NoticeSource, AHalfWrittenRequestIsNotMistakenForTheEnd) {
  put("");
  EXPECT_EQ(news(), "");
  put(R"({"action": "check)");
  EXPECT_EQ(news(), "");
  EXPECT_EQ(source_.interval(), 100ms);
  put(R"({"action": "checkpoint"})");
  EXPECT_EQ(news(), "checkpoint ");
  EXPECT_EQ(source_.interval(), 1s);
}

TEST_F(NoticeSource, GarbageIsBelievedInTheEnd) {
  put("not JSON");
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "coming ");
  put("still not");
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "coming ");
  // Read again: now it says when.
  put(R"({"in_seconds": 30})");
  EXPECT_EQ(news(), "coming ");
  EXPECT_EQ(last_.deadline, clock_.now() + 30s);
}

TEST_F(NoticeSource, GarbageThatNeverRestsIsBelievedAfterTwoSeconds) {
  int polls = 0;
  std::string kinds;
  while (kinds.empty() && polls < 100) {
    put("garbage " + std::to_string(++polls));
    kinds = news();
  }
  EXPECT_EQ(kinds, "coming ");
  EXPECT_EQ(polls, 21);
}

TEST_F(NoticeSource, WrittenAgainIsNewsAgain) {
  for (int i = 0; i < 3; ++i) {
    put(R"({"action": "checkpoint"})");
    EXPECT_EQ(news(), "checkpoint ");
    EXPECT_EQ(news(), "");
  }
  fs::rename(path_, folder_.path() / "old");
  EXPECT_EQ(news(), "");
  fs::rename(folder_.path() / "old", path_);
  EXPECT_EQ(news(), "checkpoint ");
}

TEST_F(NoticeSource, ALaterOrEarlierTimeIsNews) {
  put(R"({"in_seconds": 90})");
  EXPECT_EQ(news(), "coming ");
  put(R"({"in_seconds": 200})");
  EXPECT_EQ(news(), "coming ");
  EXPECT_EQ(last_.deadline, clock_.now() + 200s);
}

TEST_F(NoticeSource, ARemovedFileWithdrawsWhatItAnnounced) {
  put("{}");
  EXPECT_EQ(news(), "coming ");
  fs::remove(path_);
  EXPECT_EQ(news(), "withdrawn ");
  EXPECT_EQ(last_.text, "the notice file is gone");
  EXPECT_EQ(news(), "");
  put("{}");
  EXPECT_EQ(news(), "coming ");
}

TEST_F(NoticeSource, OtherWordsWithdrawItToo) {
  put("{}");
  EXPECT_EQ(news(), "coming ");
  put(R"({"action": "none"})");
  EXPECT_EQ(news(), "withdrawn ");
  put(R"({"action": "none", "text": "really"})");
  EXPECT_EQ(news(), "");
  put("{}");
  EXPECT_EQ(news(), "coming ");
  put(R"({"action": "rebalance"})");
  EXPECT_EQ(news(), "withdrawn risk ");
  fs::remove(path_);
  EXPECT_EQ(news(), "");  // nothing was announced any more
}

TEST_F(NoticeSource, WhatWasNeverBelievedIsNotWithdrawn) {
  put("");
  EXPECT_EQ(news(), "");
  fs::remove(path_);
  EXPECT_EQ(news(), "");
  EXPECT_EQ(source_.interval(), 1s);
  put("");
  EXPECT_EQ(news(), "");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(news(), "");
  EXPECT_EQ(source_.interval(), 1s);
}

TEST_F(NoticeSource, APipeOrADirectoryDoesNotHang) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(news(), "");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(news(), "");
  fs::remove(path_);
  fs::create_symlink("/dev/zero", path_);
  EXPECT_EQ(news(), "");
  fs::remove(path_);
  put("{}");
  EXPECT_EQ(news(), "coming ");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(news(), "");  // nobody knows what this means: not a withdrawal
  const std::string text = log();
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 2u) << text;
  for (const std::string& line : lines)
    EXPECT_THAT(line, HasSubstr("notice is no plain file and is not read"));
}

TEST_F(NoticeSource, LinksAreFollowed) {
  write_text(folder_.path() / "real", "{}");
  fs::create_symlink("real", path_);
  EXPECT_EQ(news(), "coming ");
  fs::remove(folder_.path() / "real");
  EXPECT_EQ(news(), "withdrawn ");
  fs::remove(path_);
  fs::create_symlink(path_, path_);
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "");
  EXPECT_THAT(log(), HasSubstr("cannot be read: Too many levels of symbolic links\n"));
}

TEST_F(NoticeSource, AFolderThatComesLaterIsWatchedAndSaidOnce) {
  FileSource source(folder_.path() / "later" / "notice", clock_);
  EXPECT_TRUE(source.poll().empty());
  EXPECT_TRUE(source.poll().empty());
  fs::create_directory(folder_.path() / "later");
  write_text(folder_.path() / "later" / "notice", "{}");
  EXPECT_EQ(source.poll().size(), 1u);
  const std::string text = log();
  EXPECT_EQ(lines_of(text).size(), 1u) << text;
  EXPECT_THAT(text, HasSubstr("is watched, although there is no folder "));
}

TEST_F(NoticeSource, AnUnreadableFileIsSaidAndLeavesThingsAsTheyAre) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  put("{}");
  EXPECT_EQ(news(), "coming ");
  fs::permissions(path_, fs::perms::none);
  EXPECT_EQ(news(), "");
  EXPECT_THAT(log(), HasSubstr("cannot be read: Permission denied"));
}

TEST_F(NoticeSource, AHugeFileIsNotReadToItsEnd) {
  put("{}");
  fs::resize_file(path_, std::uintmax_t{1} << 40);
  EXPECT_EQ(news(), "");
  EXPECT_EQ(news(), "coming ");
  EXPECT_THAT(last_.text, HasSubstr("longer than 16 KiB"));
}

TEST_F(NoticeSource, ARelativePathStaysWhereItWas) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  FileSource source("notice", clock_);
  fs::current_path(before);
  put("{}");
  EXPECT_EQ(source.poll().size(), 1u);
  EXPECT_THROW(FileSource("", clock_), UsageError);
}

TEST_F(NoticeSource, TheMonitorHearsItAndKeepsTheEarliestTime) {
  put(R"({"in_seconds": 90})");
  Monitor monitor(clock_);
  monitor.add(std::make_unique<FileSource>(path_, clock_));
  monitor.start();  // a file that was there before is heard at once
  EXPECT_TRUE(monitor.pending());
  EXPECT_FALSE(monitor.stop_requested());
  EXPECT_EQ(monitor.time_left(), 90s);
  put(R"({"in_seconds": 200})");
  const auto heard = [&](std::size_t count) {
    for (int i = 0; i < 3000 && monitor.notices().size() < count; ++i) usleep(10'000);
    return monitor.notices().size() == count;
  };
  EXPECT_TRUE(heard(2));
  EXPECT_EQ(monitor.time_left(), 90s);
  fs::remove(path_);
  EXPECT_TRUE(heard(3));
  EXPECT_EQ(monitor.notices().back().kind, NoticeKind::withdrawn);
  monitor.stop();  // a notice counts before its line is written
  EXPECT_THAT(log(), HasSubstr("holdfast: notice (file): the notice file is gone\n"));
}

class HungNoticeFile : public NoticeSource {
 protected:
  HungNoticeFile() { fs::create_directory(folder_.path() / "far"); }
  ~HungNoticeFile() override { server_is_gone = false; }
  // Within some seconds.
  template <class Condition>
  static bool soon(const Condition& condition) {
    for (int ms = 0; ms < 20000 && !condition(); ms += 10) std::this_thread::sleep_for(10ms);
    return condition();
  }
  const fs::path far_ = folder_.path() / "far" / "notice";
};

TEST_F(HungNoticeFile, HoldsNeitherTheStartNorTheEnd) {
  server_is_gone = true;
  std::atomic<int> steps{0};
  std::thread life([&] {
    Monitor monitor(clock_);
    monitor.add(std::make_unique<FileSource>(far_, clock_));
    monitor.start();
    ++steps;
    monitor.stop();
    ++steps;
  });
  EXPECT_TRUE(soon([&] { return steps == 2; })) << steps << " of start and end returned";
  server_is_gone = false;
  life.join();
}

TEST_F(HungNoticeFile, IsHeardWhenItsServerComesBackAndLoggedBefore) {
  FileSource source(far_, clock_);
  server_is_gone = true;
  for (int poll = 0; poll < 12; ++poll) EXPECT_TRUE(source.poll().empty());
  write_text(far_, R"({"action": "terminate"})");
  server_is_gone = false;
  std::size_t heard = 0;
  EXPECT_TRUE(soon([&] { return (heard += source.poll().size()) == 1; }));
  EXPECT_TRUE(source.poll().empty());
  EXPECT_THAT(log(), HasSubstr("its file system does not answer"));
}

}}  // namespace holdfast::test
