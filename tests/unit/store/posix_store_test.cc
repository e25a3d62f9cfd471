// The same store on the machine's own file system.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "holdfast/base/error.h"
#include "holdfast/io/posix_file_system.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

class PosixStore : public testing::TestWithParam<PosixOptions> {
 public:
  std::vector<std::string> names(const std::filesystem::path& folder) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path().filename());
    return found;
  }
  StoreOptions options(int keep = 2) const { return {.directory = run, .keep = KeepLast{keep}}; }
  unsigned mode(const std::filesystem::path& path) const {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777;
  }

  TemporaryFolder folder;
  std::filesystem::path run = folder.path() / "a" / "run";
  PosixFileSystem files{GetParam()};
};

TEST_P(PosixStore, ARunAndItsSuccessors) {
  for (AttemptNumber attempt = 1; attempt <= 3; ++attempt) {
    Life life(files, options());
    const Selection found = life.start();
    EXPECT_EQ(life.store.attempt(), attempt);
    EXPECT_EQ(found.newest.has_value(), attempt > 1);
    EXPECT_EQ(life.step, attempt == 1 ? 0 : static_cast<std::int64_t>(attempt - 1) * 30);
    for (int i = 0; i < 3; ++i) life.round(life.step + 10);
  }
  EXPECT_THAT(names(run),
              UnorderedElementsAre("attempts", "RUN_STATE.json", "ledger-a0001.jsonl", "ledger-a0002.jsonl",
                                   "ledger-a0003.jsonl", name_of_step(80, 3), name_of_step(90, 3)));
  const auto state = read_run_state(*files.open_directory(run, false));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->durable_step, 90);
  EXPECT_FALSE(state->boot_id.empty());
}

TEST_P(PosixStore, OnlyTheOwnerMayReadTheFiles) {
  umask(0);
  Life life(files, options());
  life.start();
  life.round(10);
  EXPECT_EQ(mode(run), 0700u);
  EXPECT_EQ(mode(run / "attempts"), 0700u);
  for (const char* file : {"attempts/1", "attempts/1.state.json", "RUN_STATE.json", "ledger-a0001.jsonl"}) {
    EXPECT_EQ(mode(run / file), 0600u) << file;
  }
  EXPECT_EQ(mode(run / name_of_step(10, 1)), 0600u);
  umask(022);
}

TEST_P(PosixStore, DamageIsSteppedPastAndMovedAside) {
  {
    Life life(files, options(9));
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
  }
  std::filesystem::resize_file(run / name_of_step(30, 1), 5000);
  std::filesystem::resize_file(run / name_of_step(20, 1), 0);
  Life life(files, options(9));
  const Selection found = life.start();
  EXPECT_EQ(found.newest->step, 10);
  EXPECT_EQ(found.skipped.size(), 2u);
  life.round(15);
  EXPECT_TRUE(std::filesystem::exists(run / (name_of_step(30, 1) + ".damaged")));
  EXPECT_TRUE(std::filesystem::exists(run / (name_of_step(20, 1) + ".damaged")));
}

TEST_P(PosixStore, LinksAreNotFollowed) {
  const std::filesystem::path outside = folder.path() / "outside";
  std::filesystem::create_directory(outside);
  write_text(outside / "file", "precious");
  std::filesystem::create_directories(run);
  for (const char* name : {"RUN_STATE.json", "ledger-a0001.jsonl", "step-000000000099-a0001.h5"}) {
    std::filesystem::create_symlink(outside / "file", run / name);
  }
  Life life(files, {.directory = run, .allow_fresh = true});
  life.start();
  EXPECT_EQ(life.store.attempt(), 2u) << "the name counts, whatever it is";
  life.round(10);
  EXPECT_EQ(read_text(outside / "file"), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(run / "RUN_STATE.json"));
  EXPECT_TRUE(std::filesystem::is_symlink(run / "step-000000000099-a0001.h5"));

  const std::filesystem::path other = folder.path() / "other";
  std::filesystem::create_directory(other);
  std::filesystem::create_directory_symlink(outside, other / "attempts");
  Life refused(files, {.directory = other});
  EXPECT_THROW(refused.store.preflight(), RefusedError);
  EXPECT_THROW(refused.store.claim(), RefusedError);
  EXPECT_THAT(names(outside), ElementsAre("file"));
}

TEST_P(PosixStore, ANewerAttemptWins) {
  Life older(files, options());
  older.start();
  older.round(10);
  Life newer(files, options());
  EXPECT_EQ(newer.start().newest->step, 10);
  EXPECT_THROW(older.save(20), SupersededError);
  newer.round(11);
  EXPECT_EQ(read_run_state(*files.open_directory(run, false))->attempt, 2u);
}

TEST_P(PosixStore, ATemporaryFileSweptUnderTheWriter) {
  FaultFileSystem faults(files);
  Life older(faults, options());
  older.start();
  Life newer(files, options());
  faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::rename_new && newer.store.attempt() == 0) newer.start();
  });
  EXPECT_THROW(older.save(10), SupersededError);
  EXPECT_THAT(names(run), UnorderedElementsAre("attempts"));
  newer.round(5);
}

TEST_P(PosixStore, AnEmptiedDirectoryIsAnEnd) {
  Life life(files, options());
  life.start();
  life.round(10);
  std::filesystem::remove_all(run);
  EXPECT_THROW(life.save(20), Error);
  EXPECT_FALSE(life.store.holds(20));
}

TEST_P(PosixStore, AnUnwritableDirectoryIsNamed) {
  if (geteuid() == 0) {
    // Root may write anywhere; a file in the way is as good.
    write_text(folder.path() / "file", "x");
    Life life(files, {.directory = folder.path() / "file" / "run"});
    EXPECT_THROW(life.store.claim(), IoError);
    return;
  }
  std::filesystem::create_directories(run);
  std::filesystem::permissions(run, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  Life life(files, options());
  try {
    life.store.claim();
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(run.native()));
  }
  std::filesystem::permissions(run, std::filesystem::perms::owner_all);
}

INSTANTIATE_TEST_SUITE_P(Kernel, PosixStore,
                         testing::Values(PosixOptions{},
                                         PosixOptions{
                                             .openat2 = false, .rename_noreplace = false, .direct = false}),
                         [](const auto& info) { return info.param.openat2 ? "Newest" : "Fallbacks"; });

}}  // namespace holdfast::test
