// A log whose reader has ended (`| head`, tee, an ssh session) ends no command on which a run depends, and not
// what such a command starts. A command that answers ends quietly, as the shell's own do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "cli/supervised.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// In the child before exec: a pipe that nobody reads any more.
void lose_reader(std::initializer_list<int> streams) {
  std::signal(SIGPIPE, SIG_DFL);
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) _exit(99);
  close(ends[0]);
  for (const int stream : streams) dup2(ends[1], stream);
  close(ends[1]);
}

class BrokenPipe : public Supervise {
 protected:
  static Ended without_reader(Words words) {
    words.insert(words.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(words, {}, [] { lose_reader({STDOUT_FILENO, STDERR_FILENO}); }).wait();
  }
  Words supervised(Words options, const std::string& text) const {
    Words words = command(std::move(options), script(text));
    words.erase(words.begin());
    return words;
  }
  // In a script: notes whether it was told to ignore SIGPIPE (bit 12), and prints to both streams, which ends
  // a shell that has no reader.
  static std::string looks() {
    return "echo $((0x$(sed -n 's/^SigIgn:.*\\(.....\\)$/\\1/p' /proc/self/status) >> 12 & 1)) >>ignored; "
           "/bin/echo to the reader; /bin/echo to the reader >&2 || exit 9; ";
  }
};

TEST_F(BrokenPipe, SuperviseRestartsAndRunsItsHook) {
  const std::string text =
      looks() + "n=$(wc -l <lives); [ $n -ge 3 ] || exit 75; " + attempt("complete", "9");
  const std::string hook = "cd '" + folder_.path().string() + "'; " + looks() + "echo done >>hook";
  const Ended ended = without_reader(supervised(in_directory({"--on-complete", hook}), text));
  EXPECT_EQ(ended.exit_code, 0) << ended.signal;
  EXPECT_EQ(lives(), 3U);
  EXPECT_THAT(noted("hook"), ElementsAre("done"));
  EXPECT_THAT(noted("ignored"), ElementsAre("0", "0", "0", "0")) << "what it was told at its start";
}

// As process 1 of a container, or after `exec` from a shell with children: the supervisor works in a child.
TEST_F(BrokenPipe, SoItDoesBehindAFrontProcess) {
  const Words inner = supervised(kSoon, looks() + "[ $(wc -l <lives) -ge 3 ] || exit 75");
  const Ended ended =
      Subprocess({"/bin/sh", "-c", "sleep 20 & exec " HOLDFAST_BIN_DIR "/holdfast" + quoted(inner)}, {}, [] {
        lose_reader({STDOUT_FILENO, STDERR_FILENO});
      }).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.signal;
  EXPECT_EQ(lives(), 3U);
}

TEST_F(BrokenPipe, WhoIgnoredTheSignalHandsThatOn) {
  Words words = supervised({"--max-restarts", "0"}, looks());
  words.insert(words.begin(), HOLDFAST_BIN_DIR "/holdfast");
  Subprocess process(words, {}, [] {
    lose_reader({STDERR_FILENO});
    std::signal(SIGPIPE, SIG_IGN);
  });
  EXPECT_EQ(process.wait().exit_code, 0);
  EXPECT_THAT(noted("ignored"), ElementsAre("1"));
}

TEST_F(BrokenPipe, LaunchCheckRehearseMirrorAndFetchGoOn) {
  const auto trains = [&](const char* name) {
    Words words = supervised({}, looks() + "echo trained >>" + name + "; exit 3");
    words.front() = name;
    if (words.front() == "launch") words.insert(words.begin() + 1, {"--nproc", "1"});
    return words;
  };
  for (const char* const name : {"launch", "rehearse", "check"}) {
    const Ended ended = without_reader(trains(name));
    EXPECT_EQ(ended.signal, 0) << name;
    EXPECT_FALSE(noted(name).empty()) << name;
  }
  claim(1);
  const std::string home = (folder_.path() / "home").string();
  const std::string nowhere = (folder_.path() / "file/home").string();
  write_text(folder_.path() / "file", "");
  EXPECT_EQ(without_reader({"mirror", directory().string(), "--to", home, "--once"}).signal, 0);
  EXPECT_EQ(without_reader({"fetch", directory().string(), "--from", nowhere, "--home-wait", "0s"}).signal,
            0);
}

TEST_F(BrokenPipe, ACommandThatAnswersEndsQuietly) {
  Subprocess process({HOLDFAST_BIN_DIR "/holdfast", "--help"}, {}, [] { lose_reader({STDOUT_FILENO}); });
  const Ended ended = process.wait();
  EXPECT_EQ(ended.signal, SIGPIPE) << ended.exit_code;
  EXPECT_THAT(ended.err, IsEmpty());
}

}}  // namespace holdfast::test
