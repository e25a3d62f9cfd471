// The tool that the lanes "every syscall" and "zombie processes" stand on: it sees every change, stops before and
// after it, kills and holds.
#include "support/syscall_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::test { namespace {

using std::filesystem::exists;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Way = SyscallTracer::Way;

class TracerTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
    std::filesystem::create_directory(run_);
  }
  SyscallTracer sh(const std::string& script) const {
    return SyscallTracer({"/bin/sh", "-c", "cd \"$0\"; " + script, run_}, {}, run_, GetParam());
  }
  static std::vector<std::string> names(const SyscallTracer& tracer) {
    std::vector<std::string> found;
    for (const ChangingCall& call : tracer.calls()) found.push_back(call.name);
    return found;
  }

  TemporaryFolder folder_;
  const std::filesystem::path run_ = std::filesystem::canonical(folder_.path()) / "run";
};

// The names of the calls differ between versions of these programs.
TEST_P(TracerTest, SeesTheCallsOfChildrenToo) {
  auto tracer =
      sh("mkdir d; echo x >d/a; chmod 600 d/a; mv d/a d/b; ln d/b \"$0/c\"; rm d/b; cat c >/dev/null");
  ASSERT_EQ(tracer.wait().exit_code, 0);
  std::vector<std::string> texts;
  for (const ChangingCall& call : tracer.calls()) {
    if (call.name != "close") texts.push_back(call.text().substr(call.name.size() + 1));
  }
  const std::string d = run_ / "d";
  const std::string a = d + "/a";
  const std::string b = d + "/b";
  EXPECT_THAT(texts, ElementsAre(d, a, a, a, a + " -> " + b, b + " -> " + run_.native() + "/c", b));
}

TEST_P(TracerTest, SeesNothingElsewhere) {
  auto tracer = sh("cat /etc/passwd >/dev/null; echo x >../elsewhere; ls; [ -e a ]");
  tracer.wait();
  EXPECT_THAT(names(tracer), IsEmpty());
  EXPECT_TRUE(exists(folder_.path() / "elsewhere"));
}

TEST_P(TracerTest, KillsBeforeOrAfterTheCall) {
  for (const Moment moment : {Moment::before, Moment::after}) {
    auto tracer = sh("mkdir a b; mkdir c");
    ASSERT_TRUE(tracer.run_to(2, moment));
    EXPECT_EQ(tracer.kill().signal, SIGKILL);
    EXPECT_TRUE(exists(run_ / "a"));
    EXPECT_EQ(exists(run_ / "b"), moment == Moment::after);
    EXPECT_FALSE(exists(run_ / "c"));
    std::filesystem::remove_all(run_ / "a");
    std::filesystem::remove_all(run_ / "b");
  }
}

TEST_P(TracerTest, HoldsAndLetsOn) {
  auto tracer = sh("(while [ ! -e end ]; do :; done) & mkdir a; mkdir b; echo done; >end");
  ASSERT_TRUE(
      tracer.run_to([](const ChangingCall& call) { return call.path.ends_with("/b"); }, Moment::before));
  tracer.hold();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(tracer.out(), "");
  EXPECT_FALSE(exists(run_ / "b"));
  ASSERT_TRUE(tracer.run_to(tracer.calls().size() + 1, Moment::after));
  EXPECT_EQ(tracer.out(), "done\n");
  EXPECT_EQ(tracer.wait().exit_code, 0);
}

TEST_P(TracerTest, SaysThatAPointWasNotReached) {
  auto tracer = sh("mkdir a; exit 3");
  EXPECT_FALSE(tracer.run_to(2, Moment::before));
  EXPECT_EQ(tracer.wait().exit_code, 3);
}

TEST_P(TracerTest, EndsWhatTakesTooLong) {
  SyscallTracer tracer({"/bin/sleep", "1000"}, {}, run_, GetParam(), std::chrono::seconds(1));
  EXPECT_FALSE(tracer.run_to(1, Moment::before));
  EXPECT_EQ(tracer.wait().signal, SIGKILL);
}

// Two in one thread, beside a child of another kind, and two threads at once.
TEST_P(TracerTest, ManyStandSideBySide) {
  const auto both = [&](const std::string& name) {
    auto one = sh("mkdir " + name + "1");
    auto two = sh("mkdir " + name + "2");
    ASSERT_TRUE(two.run_to(1, Moment::before));
    ASSERT_TRUE(one.run_to(1, Moment::before));
    EXPECT_EQ(Subprocess({"/bin/mkdir", run_ / name}).wait().exit_code, 0);
    EXPECT_EQ(two.wait().exit_code, 0);
    EXPECT_EQ(one.kill().signal, SIGKILL);
    EXPECT_TRUE(exists(run_ / (name + "2")));
    EXPECT_FALSE(exists(run_ / (name + "1")));
  };
  std::thread other([&] {
    for (int i = 0; i < 10; ++i) both("x" + std::to_string(i) + "-");
  });
  for (int i = 0; i < 10; ++i) both("y" + std::to_string(i) + "-");
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Ways, TracerTest, ::testing::Values(Way::filter, Way::every_call),
                         [](const auto& info) { return info.param == Way::filter ? "Filter" : "EveryCall"; });

}}  // namespace holdfast::test
