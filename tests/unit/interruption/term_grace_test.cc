// How long a process has after SIGTERM when nobody says so: ten seconds in a container, and everybody learns
// that it is a guess. Each test of a signal in a process of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/sources.h"
#include "support/child_process.h"
#include "support/fake_clock.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::ChildProcess;

class TermGrace : public testing::Test {
 protected:
  TermGrace() {
    std::string pattern = std::filesystem::temp_directory_path() / "term_grace.XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~TermGrace() override { std::filesystem::remove_all(root_); }

  void put(const std::string& file, const std::string& content = "") {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << content;
  }
  // Seconds from SIGTERM to the notice's deadline, as a process on that machine counts them; 100 s more where
  // the notice says that somebody named them.
  int grace(const SourceOptions& options, const std::vector<std::string>& environment = {}) {
    return ChildProcess([&] {
             for (const char* const name :
                  {"HOLDFAST_TERM_GRACE", "KUBERNETES_SERVICE_HOST", "TORCHELASTIC_RUN_ID"}) {
               unsetenv(name);
             }
             for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
             test::FakeClock clock;
             auto sources = make_sources(options, clock);
             raise(SIGTERM);
             const auto notices = sources.front()->poll();
             const Duration left = *notices.at(0).deadline - clock.now();
             const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left + 999ms).count();
             return static_cast<int>(seconds) + (notices[0].guessed ? 0 : 100);
           })
        .wait()
        .exit_code;
  }
  SourceOptions here(std::optional<Duration> named = {}) const {
    return {.signals = true, .term_grace = named, .cloud = false, .system_root = root_};
  }

  std::filesystem::path root_;
};

TEST_F(TermGrace, OnAMachineOfItsOwnNobodyNamedTwentyFiveSeconds) { EXPECT_EQ(grace(here()), 25); }

TEST_F(TermGrace, TenSecondsInAContainer) {
  put(".dockerenv");
  EXPECT_EQ(grace(here()), 10) << "docker stop kills after 10 s";
}

TEST_F(TermGrace, EveryKindOfContainerIsSeen) {
  for (const auto& [file, content] : {std::pair("run/.containerenv", "engine=\"podman-4.3.1\""),
                                      std::pair("proc/1/cgroup", "12:pids:/docker/0123456789abcdef\n0::/\n"),
                                      std::pair("proc/1/cgroup", "0::/kubepods/burstable/pod12/34\n"),
                                      std::pair("proc/1/cgroup", "0::/system.slice/containerd.service/ab\n"),
                                      std::pair("proc/1/cgroup", "1:name=systemd:/lxc/box\n")}) {
    put(file, content);
    EXPECT_EQ(grace(here()), 10) << file << ": " << content;
    std::filesystem::remove(root_ / file);
  }
  EXPECT_EQ(grace(here(), {"KUBERNETES_SERVICE_HOST=10.0.0.1"}), 10);
  put("proc/1/cgroup", "0::/init.scope\n");
  EXPECT_EQ(grace(here()), 25);
}

TEST_F(TermGrace, WhatSomebodyNamedHoldsInAContainerToo) {
  put(".dockerenv");
  EXPECT_EQ(grace(here(60s)), 160);
  EXPECT_EQ(grace(here(), {"HOLDFAST_TERM_GRACE=40s"}), 140);
  EXPECT_EQ(grace(here(60s), {"HOLDFAST_TERM_GRACE=40s"}), 140);
}

TEST_F(TermGrace, TorchrunKillsAfterThirtySecondsWhateverSomebodyNamed) {
  const std::string torchrun = "TORCHELASTIC_RUN_ID=none";  // without --rdzv-id
  EXPECT_EQ(grace(here(), {torchrun, "HOLDFAST_TERM_GRACE=115s"}), 125);
  EXPECT_EQ(grace(here(60s), {torchrun}), 125);
  EXPECT_EQ(grace(here(), {torchrun, "HOLDFAST_TERM_GRACE=15s"}), 115);
  EXPECT_EQ(grace(here(), {torchrun}), 25);
  put(".dockerenv");
  EXPECT_EQ(grace(here(), {torchrun}), 10);
}

TEST(NamedDeadlines, GuessesAreNotAmongThem) {
  test::FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post({.source = "signal", .kind = NoticeKind::stop, .deadline = now + 10s, .guessed = true});
  EXPECT_EQ(monitor.deadline(), now + 10s);
  EXPECT_EQ(monitor.named_deadline(), std::nullopt);
  monitor.post({.source = "ec2", .kind = NoticeKind::deadline, .deadline = now + 90s});
  EXPECT_EQ(monitor.deadline(), now + 10s);
  EXPECT_EQ(monitor.named_deadline(), now + 90s);
  EXPECT_FALSE(monitor.standing()->guessed);
  monitor.post({.source = "signal", .kind = NoticeKind::stop, .deadline = now + 60s});
  EXPECT_EQ(monitor.named_deadline(), now + 60s);
  monitor.post({.source = "ec2", .kind = NoticeKind::withdrawn});
  EXPECT_EQ(monitor.named_deadline(), now + 60s);
}

TEST(NamedDeadlines, ANoticeWithoutATimeIsAGuessUntilItsSourceNamesOne) {
  test::FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post({.source = "file", .kind = NoticeKind::deadline});
  EXPECT_TRUE(monitor.deadline());
  EXPECT_EQ(monitor.named_deadline(), std::nullopt);
  EXPECT_TRUE(monitor.standing()->guessed);
  monitor.post({.source = "file", .kind = NoticeKind::deadline, .deadline = now + 60s});
  EXPECT_EQ(monitor.named_deadline(), now + 60s);
  EXPECT_FALSE(monitor.standing()->guessed);
  monitor.dismiss(now + 60s);
  EXPECT_EQ(monitor.named_deadline(), std::nullopt);
}

}}  // namespace holdfast
