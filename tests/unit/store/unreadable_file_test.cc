// Rule 5's exception: a latent sector error in one checkpoint must not end every start for ever, and a sick
// volume must not look like one bad file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "holdfast/base/error.h"
#include "holdfast/store/prune.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A disk on which reads of some files fail. `lasting`: so many failures a file, then it reads.
class BadSectors {
 public:
  explicit BadSectors(FileSystem& disk, std::vector<std::string> names, int code = EIO, int lasting = 1 << 30)
      : files(disk) {
    files.set_hook([this, names, code, lasting](const Operation& operation) {
      if (operation.kind != Op::read) return;
      for (const std::string& name : names) {
        if (operation.path == in_run(name) && failed[name]++ < lasting) {
          throw IoError("read", operation.path, code);
        }
      }
    });
  }
  FaultFileSystem files;
  std::map<std::string, int> failed;
};

class Rule5Unreadable : public testing::Test {
 protected:
  // A first attempt that saved these steps.
  void history(std::initializer_list<std::int64_t> steps) {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : steps) life.save(step);
  }

  MemoryFileSystem disk;
};

// The page cache makes EIO of every error of a device. O_DIRECT, which reads large checkpoints, passes them on.
class Rule5UnreadableWith : public Rule5Unreadable, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Errno, Rule5UnreadableWith,
                         testing::Values(EIO, ENODATA, EILSEQ, EREMOTEIO, EBADMSG, EUCLEAN),
                         [](const auto& info) { return std::string(strerrorname_np(info.param)); });

TEST_P(Rule5UnreadableWith, ABadSectorInTheNewestFileIsSteppedPastAndTheFileStays) {
  history({100, 200, 300});
  const auto bytes = disk.get(in_run(name_of_step(300, 1)));
  BadSectors bad(disk, {name_of_step(300, 1)}, GetParam());
  {
    Life life(bad.files, {.keep = KeepLast{2}});
    const Selection found = life.start();
    ASSERT_TRUE(found.newest);
    EXPECT_EQ(found.newest->step, 200);
    ASSERT_EQ(found.skipped.size(), 1u);
    EXPECT_EQ(found.skipped[0].name, name_of_step(300, 1));
    EXPECT_THAT(found.skipped[0].reason,
                AllOf(HasSubstr("cannot be read"), HasSubstr(strerrordesc_np(GetParam()))));
    for (const std::int64_t step : {210, 220, 230}) life.round(step);
  }
  EXPECT_EQ(bad.failed[name_of_step(300, 1)], 4) << "three looks, and one at the second selection";
  EXPECT_THAT(checkpoints(disk),
              ElementsAre(name_of_step(220, 2), name_of_step(230, 2), name_of_step(300, 1)));
  Life next(bad.files);
  const Selection found = next.start();
  EXPECT_EQ(found.newest->name, name_of_step(230, 2)) << "older attempts are not asked";
  EXPECT_THAT(found.skipped, IsEmpty());
  EXPECT_EQ(disk.get(in_run(name_of_step(300, 1))), bytes);
}

TEST_P(Rule5UnreadableWith, AVolumeOnWhichNothingReadsEndsTheStart) {
  history({100, 200});
  for (const bool allow_fresh : {false, true}) {
    BadSectors bad(disk, {name_of_step(100, 1), name_of_step(200, 1)}, GetParam());
    Life life(bad.files, {.allow_fresh = allow_fresh});
    try {
      life.store.preflight();
      ADD_FAILURE() << "went on";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), GetParam());
      EXPECT_EQ(error.path(), in_run(name_of_step(200, 1)));
    }
  }
}

TEST_F(Rule5Unreadable, OnlyAnErrorOfOneFileIsSteppedPast) {
  history({100, 200});
  for (const int code : {ESTALE, EACCES, ENOMEM, ETIMEDOUT, ENODEV, ENXIO, ENOLINK, ENOTCONN}) {
    BadSectors bad(disk, {name_of_step(200, 1)}, code);
    EXPECT_THROW(Life(bad.files).store.preflight(), IoError) << code;
  }
  BadSectors bad(disk, {name_of_step(200, 1)});
  EXPECT_THROW(Life(bad.files, {.start = {.step = 200}}).store.preflight(), IoError) << "the user chose it";
}

TEST_F(Rule5Unreadable, AFileThatReadsAgainIsTaken) {
  history({100, 200});
  for (const int failures : {1, 2}) {
    BadSectors bad(disk, {name_of_step(200, 1)}, EIO, failures);
    EXPECT_EQ(Life(bad.files).store.preflight().newest->step, 200) << failures;
  }
  BadSectors bad(disk, {name_of_step(200, 1)}, EIO, 3);
  Life life(bad.files);
  EXPECT_EQ(life.store.preflight().newest->step, 100);
  life.store.claim();
  EXPECT_EQ(life.recover().newest->step, 200) << "it read well before anything was trained";
}

TEST_F(Rule5Unreadable, AFileThatIsDamagedWhereItReadsAndElsewhereDoesNotReadIsNotMoved) {
  history({100, 200, 300});
  rot(disk, name_of_step(300, 1));
  BadSectors bad(disk, {name_of_step(300, 1)}, EIO, 1);
  Life life(bad.files);
  EXPECT_EQ(life.start().newest->step, 200);
  life.round(310);
  EXPECT_TRUE(disk.exists(in_run(name_of_step(300, 1))));
}

TEST_F(Rule5Unreadable, ANewerFormatBelowAnUnreadableFileIsRefused) {
  history({100});
  put_toy(disk, {.version = 2, .step = 200, .attempt = 1});
  put_toy(disk, {.step = 300, .attempt = 1});
  BadSectors bad(disk, {name_of_step(300, 1)});
  EXPECT_THROW(Life(bad.files).store.preflight(), RefusedError);
}

TEST_P(Rule5UnreadableWith, PruneLeavesItAloneAndGoesOn) {
  history({100, 200, 300, 400, 500});
  BadSectors bad(disk, {name_of_step(500, 1), name_of_step(300, 1)}, GetParam());
  FakeClock clock;
  ToyVerifier verifier;
  const PruneResult result =
      prune(bad.files, clock, verifier, {.directory = kRun, .keep = KeepLast{2}, .even_if_running = true});
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(200, 1), name_of_step(300, 1), name_of_step(400, 1),
                                             name_of_step(500, 1)));
  EXPECT_GT(result.attempt, 0u) << "nothing was deleted";
}

TEST_P(Rule5UnreadableWith, RetentionLeavesItAloneAndGoesOn) {
  history({100, 200});
  put_toy(disk, {.step = 300, .attempt = 1, .finite = false});
  BadSectors bad(disk, {name_of_step(200, 1)}, GetParam());
  Life life(bad.files, {.keep = KeepLast{2}});
  EXPECT_EQ(life.start().newest->step, 300);
  for (const std::int64_t step : {310, 320, 330}) life.round(step, false);  // the good past is asked for
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(100, 1), name_of_step(200, 1), name_of_step(320, 2),
                                             name_of_step(330, 2)));
}

}}  // namespace holdfast::test
