// A run directory that somebody else owns or may write to is refused, before anything in it is believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/forwarding.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kSomebody = 4711;

// A server that shows files as it likes.
class ShowingDirectory final : public ForwardingDirectory {
 public:
  using Show = std::function<void(FileStatus&)>;
  ShowingDirectory(std::unique_ptr<Directory> inner, Show show)
      : ForwardingDirectory(std::move(inner)), show_(std::move(show)) {}
  std::optional<FileStatus> status(std::string_view name) const override {
    auto found = ForwardingDirectory::status(name);
    if (found) show_(*found);
    return found;
  }

 private:
  const Show show_;
};

class ShowingFileSystem final : public ForwardingFileSystem {
 public:
  ShowingFileSystem(MemoryFileSystem& disk, ShowingDirectory::Show show)
      : ForwardingFileSystem(disk), show_(std::move(show)) {}
  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    auto directory = ForwardingFileSystem::open_directory(path, create);
    return directory ? std::make_unique<ShowingDirectory>(std::move(directory), show_) : nullptr;
  }

 private:
  const ShowingDirectory::Show show_;
};

class TrustedDirectory : public testing::Test {
 public:
  TrustedDirectory() { Life(disk).start(); }
  // What a start says; "" when it goes on. A refusal claims nothing and leaves nothing.
  std::string refusal(
      bool only_ours = true, const ShowingDirectory::Show& show = [](FileStatus&) {}) {
    ShowingFileSystem files(disk, show);
    const auto before = disk.names(kRun);
    const auto claims = disk.names(kRun / "attempts");
    Life life(files, {.only_ours = only_ours});
    try {
      life.store.preflight();
      life.start();
      return "";
    } catch (const RefusedError& error) {
      EXPECT_EQ(disk.names(kRun), before);
      EXPECT_EQ(disk.names(kRun / "attempts"), claims);
      return error.what();
    }
  }

  MemoryFileSystem disk;
};

TEST_F(TrustedDirectory, OfThisUserOrRoot) {
  EXPECT_EQ(refusal(), "");
  disk.give(kRun, 0, 0, 0755);
  EXPECT_EQ(refusal(), "");
}

TEST_F(TrustedDirectory, SomebodyElsesIsRefused) {
  disk.give(kRun, kSomebody, kSomebody, 0700);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("/volume/run is not this user's alone"),
                                        HasSubstr("belongs to user 4711"), HasSubstr("--trust-directory")));
  EXPECT_EQ(refusal(false), "");
}

TEST_F(TrustedDirectory, WritableForAnybodyIsRefused) {
  for (const std::uint32_t mode : {0777U, 01777U, 0702U}) {
    disk.give(kRun, geteuid(), getegid(), mode);
    EXPECT_THAT(refusal(), HasSubstr("anybody may write to it")) << mode;
  }
}

// Kubernetes gives a volume to the pod's group, and lets it write.
TEST_F(TrustedDirectory, OnlyForAGroupOfThisProcess) {
  disk.give(kRun, geteuid(), getegid(), 02770);
  EXPECT_EQ(refusal(), "");
  disk.give(kRun, geteuid(), kSomebody, 02770);
  EXPECT_THAT(refusal(), HasSubstr("group 4711"));
  disk.give(kRun, geteuid(), kSomebody, 02750);
  EXPECT_EQ(refusal(), "");
}

// Root squash, or an access point: what we make is shown as another user's.
TEST_F(TrustedDirectory, WhereTheServerDecidesAboutOwners) {
  disk.give(kRun, kSomebody, kSomebody, 0700);
  disk.map_owner(kSomebody);
  EXPECT_EQ(refusal(), "");
  for (const std::string& name : disk.names(kRun)) EXPECT_FALSE(name.starts_with("tmp-")) << name;
  disk.map_owner(kSomebody + 1);
  EXPECT_THAT(Life(disk).store.list(), testing::IsEmpty()) << "readers do not ask";
  Life life(disk, {.only_ours = true});
  EXPECT_THROW(life.store.preflight(), RefusedError);
}

// CIFS, drvfs, vboxsf: the mount's options say what everything looks like, and chmod changes nothing.
TEST_F(TrustedDirectory, WhereModesAreNotKeptTheMountHasToChange) {
  for (const std::uint32_t mode : {0777U, 0775U}) {
    const auto as_mounted = [&](FileStatus& status) {
      status.mode = mode;
      status.group = kSomebody;
    };
    disk.give(kRun, geteuid(), kSomebody, mode);
    EXPECT_THAT(refusal(true, as_mounted),
                testing::AllOf(HasSubstr("dir_mode=0700"), testing::Not(HasSubstr("chmod")),
                               HasSubstr("--trust-directory")))
        << mode;
    EXPECT_EQ(refusal(false, as_mounted), "");
  }
}

// An access point of EFS acts as its own user and group, whoever asks.
TEST_F(TrustedDirectory, WhereTheServerDecidesAboutGroups) {
  const auto as_somebody = [](FileStatus& status) { status.owner = status.group = kSomebody; };
  disk.give(kRun, kSomebody, kSomebody, 0775);
  EXPECT_EQ(refusal(true, as_somebody), "");
  disk.give(kRun, kSomebody, kSomebody + 1, 0775);
  EXPECT_THAT(refusal(true, as_somebody), HasSubstr("group 4712"));
  disk.give(kRun, kSomebody, kSomebody, 02775);
  EXPECT_THAT(refusal(true, as_somebody), HasSubstr("group 4711")) << "a new file inherits it";
}

class AskingTheServer : public TrustedDirectory {
 public:
  AskingTheServer() {
    disk.give(kRun, kSomebody, kSomebody, 0700);
    disk.map_owner(kSomebody);
  }
  static bool is_question(const Operation& operation, Op kind) {
    return operation.kind == kind && operation.path.find("-owner-") != std::string::npos;
  }

  FaultFileSystem files{disk};
  Life asking{files, {.only_ours = true}};
};

TEST_F(AskingTheServer, WhatMayPassIsAnIoError) {
  for (const int code : {ENOSPC, EDQUOT, EIO, ESTALE, EROFS}) {
    files.fail(Op::create, 1, code);
    EXPECT_THROW(asking.store.preflight(), IoError) << strerrorname_np(code);
    EXPECT_NO_THROW(asking.store.preflight());
  }
}

TEST_F(AskingTheServer, WhoMayNotEvenWriteIsNotTheOwner) {
  files.fail(Op::create, 1, EACCES);
  try {
    asking.store.preflight();
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("belongs to user 4711"));
  }
}

// Containers often have the same process id; a start that was killed leaves its question.
TEST_F(AskingTheServer, OneNameDoesNotCollideWithAnother) {
  std::string taken;
  files.set_hook([&](const Operation& operation) {
    if (!is_question(operation, Op::create)) return;
    if (taken.empty()) disk.put(taken = operation.path, "");
  });
  EXPECT_NO_THROW(asking.store.preflight());
  ASSERT_FALSE(taken.empty());
  EXPECT_TRUE(disk.exists(taken)) << "it is another start's";
}

TEST_F(AskingTheServer, ASuccessorMaySweepTheQuestion) {
  bool swept = false;
  files.set_hook([&](const Operation& operation) {
    if (swept || !is_question(operation, Op::status)) return;
    swept =
        disk.open_directory(kRun, false)->unlink(std::filesystem::path(operation.path).filename().native());
  });
  EXPECT_NO_THROW(asking.store.preflight());
  EXPECT_TRUE(swept);
}

TEST_F(AskingTheServer, NobodyWaitsForEver) {
  files.set_hook([&](const Operation& operation) {
    if (is_question(operation, Op::create)) disk.put(operation.path, "");
  });
  EXPECT_THROW(asking.store.preflight(), IoError);
}

TEST_F(AskingTheServer, WhatStaysOfTheQuestionIsSwept) {
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::unlink) throw IoError("unlink", operation.path, EIO);
  });
  EXPECT_NO_THROW(asking.store.preflight());
  EXPECT_EQ(disk.names(kRun).size(), 2u);
  Life next(disk);
  next.start();
  EXPECT_EQ(next.store.attempt(), 2u);
  EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
}

// Somebody made it between the look and the claim.
TEST_F(TrustedDirectory, TheClaimAsksAgain) {
  Life life(disk, {.only_ours = true});
  life.store.preflight();
  disk.give(kRun, geteuid(), getegid(), 0777);
  EXPECT_THROW(life.store.claim(), RefusedError);
  EXPECT_THAT(disk.names(kRun / "attempts"), ElementsAre("1"));
}

}}  // namespace holdfast::test
