// Who sees rank 0's directory: only who finds there what rank 0 put there a moment ago, and may write.
#include "holdfast/ranks/shared_volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "support/fake_clock.h"
#include "support/shared_world.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::IsEmpty;

MemoryFileSystem disk_with_run() {
  MemoryFileSystem disk;
  disk.open_directory(kSharedRun, true);
  return disk;
}

// Every rank on its own view of some disk.
std::vector<SharedVolume> all_look(SharedMail& mail, const std::vector<FileSystem*>& views, Clock& clock) {
  std::vector<SharedVolume> found(views.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < views.size(); ++r) {
    threads.emplace_back([&, r] {
      found[r] =
          find_shared_volume(*views[r], kSharedRun, r == 0 ? 3 : 0, mail.of(static_cast<int>(r)), clock);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(SharedVolume, IsSeenByWhoFindsTheNonceAndMayWriteThere) {
  MemoryFileSystem disk = disk_with_run();
  MemoryFileSystem same_path = disk_with_run();  // a local disk of another host
  MemoryFileSystem nothing;
  FaultFileSystem read_only(disk);
  read_only.fail(Op::open_overwrite, 1, EROFS, {.for_ever = true});
  FakeClock clock;
  SharedMail mail(6);
  const auto found = all_look(mail, {&disk, &disk, &same_path, &nothing, &read_only, &disk}, clock);
  for (const SharedVolume& volume : found) {
    EXPECT_EQ(volume.sees, (std::vector<bool>{true, true, false, false, false, true}));
    ASSERT_EQ(volume.reasons.size(), 6u);
    EXPECT_THAT(volume.reasons[1], IsEmpty());
    EXPECT_THAT(volume.reasons[2], HasSubstr("is not rank 0's"));
    EXPECT_THAT(volume.reasons[3], HasSubstr("does not exist here"));
    EXPECT_THAT(volume.reasons[4], HasSubstr("Read-only"));
  }
  EXPECT_THAT(disk.names(kSharedRun), IsEmpty());
  EXPECT_THAT(same_path.names(kSharedRun), IsEmpty());
  // A bounded time, and 100 tries at most.
  EXPECT_LE(clock.slept(), 3 * std::chrono::seconds(11));
}

TEST(SharedVolume, ANumberOfAnotherTimeIsNotThere) {
  MemoryFileSystem disk = disk_with_run();
  MemoryFileSystem copied = disk_with_run();
  FakeClock clock;
  SharedMail mail(2);
  mail.set_change([&](int rank, const std::string&, std::string text) {
    // A copy of the directory with what the same attempt may have put there once.
    if (rank == 0 && text.starts_with("tmp-a0003-nonce-")) {
      copied.put(std::string(kSharedRun) + "/" + text.substr(0, text.find(' ')), std::string(32, 'a'));
    }
    return std::optional(std::move(text));
  });
  const auto found = all_look(mail, {&disk, &copied}, clock);
  EXPECT_EQ(found[0].sees, (std::vector<bool>{true, false}));
  EXPECT_THAT(found[1].reasons[1], HasSubstr("another content"));
}

TEST(SharedVolume, ANameThatShowsLateIsFound) {
  MemoryFileSystem disk = disk_with_run();
  FaultFileSystem slow(disk);
  FakeClock clock;
  // For three seconds the directory cannot be seen as it is.
  slow.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::open_overwrite && clock.slept() < std::chrono::seconds(3)) {
      throw IoError("open", operation.path, ESTALE);
    }
  });
  SharedMail mail(2);
  const auto found = all_look(mail, {&disk, &slow}, clock);
  EXPECT_EQ(found[0].sees, (std::vector<bool>{true, true})) << found[0].reasons[1];
}

TEST(SharedVolume, IsNothingToAskForAWorldOfOne) {
  MemoryFileSystem disk = disk_with_run();
  FakeClock clock;
  SharedMail mail(1);
  EXPECT_EQ(all_look(mail, {&disk}, clock)[0].sees, (std::vector<bool>{true}));
  EXPECT_EQ(mail.told(0), 0);
}

TEST(SharedVolume, RankZeroMustBeAbleToWriteThere) {
  MemoryFileSystem disk = disk_with_run();
  for (const Op op : {Op::create, Op::write, Op::sync_file, Op::sync_directory}) {
    FaultFileSystem faults(disk);
    faults.fail(op, 1, EIO);
    FakeClock clock;
    SharedMail mail(2);
    const auto found = all_look(mail, {&faults, &disk}, clock);
    EXPECT_EQ(found[0].sees, (std::vector<bool>{true, false}));
    EXPECT_EQ(found[1].sees, (std::vector<bool>{true, false}));
    EXPECT_THAT(disk.names(kSharedRun), IsEmpty());
  }
}

TEST(SharedVolume, NonsenseIsNoSight) {
  for (const std::string nonsense : {"", "x", "step-000000000010-a0001.h5 0123456789abcdef0123456789abcdef",
                                     "../x 0123456789abcdef0123456789abcdef"}) {
    MemoryFileSystem disk = disk_with_run();
    FakeClock clock;
    SharedMail mail(2);
    mail.set_change([&](int rank, const std::string& name, std::string text) {
      if (rank == 0 && name.ends_with("nonce")) return std::optional(nonsense);
      return std::optional(std::move(text));
    });
    EXPECT_EQ(all_look(mail, {&disk, &disk}, clock)[1].sees, (std::vector<bool>{true, false}));
  }
  MemoryFileSystem disk = disk_with_run();
  FakeClock clock;
  SharedMail mail(2);
  mail.set_change([&](int rank, const std::string&, std::string text) {
    return rank == 1 ? std::optional(std::string("see\nn")) : std::optional(std::move(text));
  });
  const auto found = all_look(mail, {&disk, &disk}, clock);
  EXPECT_EQ(found[0].sees, (std::vector<bool>{true, false}));
  EXPECT_EQ(found[1].reasons, found[0].reasons);
}

}}  // namespace holdfast::test
