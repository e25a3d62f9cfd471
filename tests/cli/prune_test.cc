// `holdfast prune` on directories as real runs leave them, and the run that goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/store/names.h"
#include "support/memory_source.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PruneCommand : public testing::Test {
 protected:
  static CheckpointerOptions options(const fs::path& directory) {
    CheckpointerOptions options;
    options.directory = directory;
    options.every = {};
    options.keep = KeepLast{100};
    options.notices.hear_signals = false;
    return options;
  }
  PruneCommand() { set_log_level(LogLevel::error); }
  // One life up to `last`, saving every second step; the accuracy is best at step 4.
  static std::string train(const fs::path& directory, std::int64_t last) {
    MemorySource source;
    Checkpointer checkpointer(source, options(directory));
    checkpointer.resume();
    while (source.step() < last) {
      checkpointer.after_step(source.train());
      if (source.step() % 2 != 0) continue;
      checkpointer.metric("accuracy", source.step() == 4 ? 0.9 : 0.1);
      checkpointer.save().wait();
    }
    EXPECT_EQ(checkpointer.finish(), 0);
    return to_hex(checkpointer.state_digest());
  }
  Ended prune(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {HOLDFAST_BIN_DIR "/holdfast", "prune", run().native()});
    return Subprocess(std::move(arguments)).wait();
  }
  Ended ls() const { return Subprocess({HOLDFAST_BIN_DIR "/holdfast", "ls", run().native()}).wait(); }
  fs::path run() const { return folder_.path() / "run"; }
  std::vector<std::int64_t> steps() const {
    std::set<std::int64_t> found;
    for (const auto& entry : fs::directory_iterator(run())) {
      if (const auto id = parse_checkpoint_name(entry.path().filename().native())) found.insert(id->step);
    }
    return {found.begin(), found.end()};
  }
  // Every name with its content.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run())) {
      all[entry.path()] = entry.is_regular_file() ? read_text(entry.path()) : "";
    }
    return all;
  }

  static void flip(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-100, std::ios::end);
    const char flipped = static_cast<char>(file.get() ^ 1);
    file.seekp(-100, std::ios::end);
    file.put(flipped);
  }
  void prune_two_tiers(const std::string& place);

  TemporaryFolder folder_;
};

TEST_F(PruneCommand, LeavesKernelsAloneAndDoesNotNameThem) {
  train(run(), 6);
  fs::create_directory(run() / kKernelsDirectory);
  write_text(run() / kKernelsDirectory / "0123456789abcdef0123456789abcdef", "code");
  const Ended ended = prune({"--keep", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out + ended.err, Not(HasSubstr("kernels")));
  EXPECT_THAT(steps(), ElementsAre(4, 6));
  EXPECT_EQ(read_text(run() / kKernelsDirectory / "0123456789abcdef0123456789abcdef"), "code");
  const Ended listed = ls();
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out + listed.err, Not(HasSubstr("kernels")));
}

TEST_F(PruneCommand, HelpHasAnExample) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "prune", "--help"}).wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Example:\n  holdfast prune "), HasSubstr("Exit code: 0")));
}

TEST_F(PruneCommand, MistakesOfUseChangeNothing) {
  train(run(), 6);
  for (const std::string keep : {"1", "last=1", "every=0", "best=accuracy", "soon", ""}) {
    const Ended ended = prune({"--keep", keep});
    EXPECT_EQ(ended.exit_code, 64) << keep << ended.err;
    EXPECT_THAT(ended.err, StartsWith("holdfast: "));
  }
  EXPECT_EQ(prune({}).exit_code, 64);
  EXPECT_EQ(steps().size(), 3u);
  const Ended missing =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "prune", (folder_.path() / "no").native(), "--keep", "2"})
          .wait();
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_FALSE(fs::exists(folder_.path() / "no"));
}

TEST_F(PruneCommand, ADryRunShowsEverythingAndChangesNothing) {
  train(run(), 12);
  write_text(run() / "notes.txt", "mine");
  write_text(run() / "tmp-a0001-step-14-9", "half");
  const auto before = everything();
  const Ended ended = prune({"--keep", "last=2,best=accuracy:max", "--dry-run"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(everything(), before);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("best accuracy (0.9)"), HasSubstr("last 2"), HasSubstr("notes.txt"),
                               HasSubstr("half-written by attempt 1"), HasSubstr("would delete 4 files"),
                               Not(HasSubstr("RUN_STATE"))));
}

TEST_F(PruneCommand, DeletesAndTheRunGoesOnBitExactly) {
  const std::string expected = train(folder_.path() / "straight", 20);
  train(run(), 12);
  const Ended ended = prune({"--keep", "last=2,best=accuracy:max,every=8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("deleted 2 files"), HasSubstr("as attempt 2")));
  EXPECT_THAT(steps(), ElementsAre(4, 8, 10, 12));
  EXPECT_THAT(ls().out, HasSubstr("attempt 2: complete"));
  EXPECT_EQ(train(run(), 20), expected);
  EXPECT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "verify", run().native()}).wait().exit_code, 0);
}

TEST_F(PruneCommand, WhereNothingGoesNothingChanges) {
  train(run(), 6);
  const auto before = everything();
  const Ended ended = prune({"--keep", "3"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.last_line(), HasSubstr("nothing to delete"));
  EXPECT_EQ(everything(), before);
}

TEST_F(PruneCommand, ARunThatIsAliveIsFencedOffOnlyWhenToldTo) {
  MemorySource source;
  Checkpointer checkpointer(source, options(run()));
  checkpointer.resume();
  const auto save = [&] {
    checkpointer.after_step(source.train());
    return checkpointer.save().wait();
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(save(), SaveStatus::durable);
  const Ended refused = prune({"--keep", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("seems to be alive"), HasSubstr("--even-if-running")));
  EXPECT_EQ(steps().size(), 4u);
  EXPECT_EQ(save(), SaveStatus::durable);

  EXPECT_EQ(prune({"--keep", "2", "--even-if-running"}).exit_code, 0);
  EXPECT_THAT(steps(), ElementsAre(4, 5));
  EXPECT_EQ(save(), SaveStatus::failed);
  EXPECT_EQ(checkpointer.finish(), 76);
  EXPECT_THAT(steps(), ElementsAre(4, 5));
  EXPECT_THAT(ls().out, HasSubstr("interrupted"));
}

TEST_F(PruneCommand, AMetricThatNobodyMeasuredIsRefused) {
  train(run(), 8);
  const auto before = everything();
  for (const bool dry : {true, false}) {
    std::vector<std::string> arguments{"--keep", "last=2,best=acuracy:max"};
    if (dry) arguments.emplace_back("--dry-run");
    const Ended ended = prune(arguments);
    EXPECT_EQ(ended.exit_code, 64) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("no checkpoint has metric acuracy; there are: accuracy"));
    EXPECT_EQ(everything(), before);
  }
}

TEST_F(PruneCommand, WhatIsDamagedIsShownAndStays) {
  train(run(), 10);
  const fs::path damaged = run() / checkpoint_name({.attempt = 1, .step = 8});
  flip(damaged);
  const Ended ended = prune({"--keep", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("damaged: "));
  EXPECT_THAT(steps(), ElementsAre(6, 8, 10));
}

// `place`: how HOME is named, before its path.
void PruneCommand::prune_two_tiers(const std::string& place) {
  const fs::path home = folder_.path() / "home";
  const std::string named = place + home.native();
  const auto in_home = [&] {
    std::int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(home))
      count += parse_checkpoint_name(entry.path().filename().native()) ? 1 : 0;
    return count;
  };
  for (const std::int64_t last : {4, 8, 12}) {
    train(run(), last);
    ASSERT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "mirror", run().native(), "--to", named, "--once",
                          "--home-keep", "9"})
                  .wait()
                  .exit_code,
              0);
  }
  ASSERT_EQ(in_home(), 6);
  const Ended plan = prune({"--keep", "last=2", "--home", named, "--home-keep", "2", "--dry-run"});
  EXPECT_THAT(plan.out, HasSubstr("holds 6 checkpoints; would delete at most 4"));
  EXPECT_EQ(in_home(), 6);
  const Ended ended = prune({"--keep", "last=2", "--home", named, "--home-keep", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(in_home(), 2);
  EXPECT_THAT(steps(), ElementsAre(10, 12));
  // The home is still this run's.
  train(run(), 14);
  ASSERT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "mirror", run().native(), "--to", named, "--once"})
                .wait()
                .exit_code,
            0);
  EXPECT_TRUE(fs::exists(home / checkpoint_name({.attempt = 5, .step = 14})));
  EXPECT_EQ(prune({"--keep", "last=2", "--home", named, "--home-keep", "1"}).exit_code, 64);
}

TEST_F(PruneCommand, ASecondPlaceIsPrunedWithItsRun) { prune_two_tiers(""); }

TEST_F(PruneCommand, AStoreIsPrunedWithItsRun) {
  if (system("rclone version >/dev/null 2>&1") != 0) GTEST_SKIP() << "rclone is not installed";
  prune_two_tiers("rclone::local:");
}

TEST_F(PruneCommand, AMirrorOfAMissingDirectoryFails) {
  const std::string home = (folder_.path() / "home").native();
  const auto mirrored = [&] {
    return Subprocess({HOLDFAST_BIN_DIR "/holdfast", "mirror", run().native(), "--to", home, "--once"})
        .wait();
  };
  const Ended missing = mirrored();
  EXPECT_EQ(missing.exit_code, 2) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr("is its volume mounted?"));
  fs::create_directory(run());
  const Ended empty = mirrored();
  EXPECT_EQ(empty.exit_code, 0) << empty.err;
  EXPECT_THAT(empty.err, HasSubstr("holds no checkpoint"));
}

TEST_F(PruneCommand, ADamagedNewestIsNotHome) {
  const std::string home = (folder_.path() / "home").native();
  train(run(), 4);
  flip(run() / checkpoint_name({.attempt = 1, .step = 4}));
  const Ended ended =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "mirror", run().native(), "--to", home, "--once"}).wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("is damaged"));
  EXPECT_EQ(prune({"--keep", "last=2", "--home", home}).exit_code, 75);
}

// The trainers of `supervise` in short.
class SupervisedMirror : public PruneCommand {};

// The hook of its end may end the fleet.
TEST_F(SupervisedMirror, ADamagedLastCheckpointRunsNoHook) {
  const fs::path hook = folder_.path() / "hook";
  const fs::path made = folder_.path() / "made";
  train(made, 4);
  flip(made / checkpoint_name({.attempt = 1, .step = 4}));
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "supervise", "--directory", run().native(),
                                  "--mirror", (folder_.path() / "home").native(), "--on-complete",
                                  "touch '" + hook.native() + "'", "--", "/bin/sh", "-c",
                                  "cp -r '" + made.native() + "/.' '" + run().native() +
                                      "'; echo \"{\\\"supervisor\\\": \\\"$HOLDFAST_SUPERVISOR\\\"}\" >'" +
                                      (run() / kAttemptsDirectory / "1").native() + "'"})
                          .wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--on-complete does not run"));
  EXPECT_FALSE(fs::exists(hook));
}

// A wrapper that starts it again would end the machine that owns the run.
TEST_F(SupervisedMirror, ATakenOverRunThatIsToldToStopEndsWith76) {
  const fs::path home = folder_.path() / "home";
  const fs::path made = folder_.path() / "made";
  const fs::path go = folder_.path() / "go";
  train(made, 4);
  Subprocess supervise({HOLDFAST_BIN_DIR "/holdfast", "supervise", "--directory", run().native(), "--mirror",
                        home.native(), "--", "/bin/sh", "-c",
                        "trap 'sleep 1; exit 75' TERM; until [ -e '" + go.native() +
                            "' ]; do sleep 0.05; done; cp -r '" + made.native() + "/.' '" + run().native() +
                            "'; while :; do sleep 0.1; done"});
  ASSERT_TRUE(supervise.wait_until([&] {
    return supervise.err().find("supervising process") != std::string::npos;
  })) << supervise.err();
  const Ended takeover = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "takeover", home.native()}).wait();
  ASSERT_EQ(takeover.exit_code, 0) << takeover.err;
  write_text(go, "");  // the mirror looks for newer claims behind each copy
  ASSERT_TRUE(supervise.wait_until([&] { return supervise.err().find("gets SIGTERM") != std::string::npos; }))
      << supervise.err();
  supervise.send(SIGTERM);
  const Ended ended = supervise.wait();
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
}

TEST_F(PruneCommand, AHomeWhoseMirrorLivesIsLeftAlone) {
  const fs::path home = folder_.path() / "home";
  train(run(), 12);
  const auto prune_home = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {HOLDFAST_BIN_DIR "/holdfast", "prune", home.native(), "--keep", "last=2"});
    return Subprocess(std::move(more)).wait();
  };
  Subprocess mirror({HOLDFAST_BIN_DIR "/holdfast", "mirror", run().native(), "--to", home.native()});
  ASSERT_TRUE(mirror.wait_until([&] {
    return fs::exists(home / checkpoint_name({.attempt = 1, .step = 10}));
  })) << mirror.err();
  const Ended refused = prune_home({});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is the home of a run"));
  EXPECT_EQ(prune_home({"--dry-run"}).exit_code, 0);
  mirror.send(SIGTERM);
  EXPECT_EQ(mirror.wait().exit_code, 0);
  EXPECT_EQ(prune_home({}).exit_code, 0);
}

}}  // namespace holdfast::test
