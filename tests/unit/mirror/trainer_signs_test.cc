// What a mirror sees of the trainer beside it.
#include "holdfast/mirror/trainer_signs.h"

#include <gtest/gtest.h>

#include "holdfast/mirror/pace.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

class Signs : public testing::Test {
 protected:
  Signs() { disk.open_directory("/nvme/run", true)->open_directory("attempts", true); }
  void begin_write(AttemptNumber attempt, const std::string& what = "x") {
    disk.open_directory("/nvme/run", false)->open(temporary_name(attempt, what), OpenMode::create);
    clock.advance(1s);
  }
  void end_write(AttemptNumber attempt, const std::string& what = "x") {
    disk.open_directory("/nvme/run", false)->unlink(temporary_name(attempt, what));
    clock.advance(1s);
  }
  MemoryFileSystem disk;
  FakeClock clock;
  TrainerSigns trainer{disk, "/nvme/run", clock};
};

TEST_F(Signs, ATemporaryFileOfTheNewestAttemptIsAWrite) {
  EXPECT_FALSE(trainer.writes());
  begin_write(2);
  EXPECT_TRUE(trainer.writes());
  end_write(2);
  EXPECT_FALSE(trainer.writes());
  disk.open_directory("/nvme/run/attempts", false)->open(claim_name(3), OpenMode::create);
  begin_write(2);
  EXPECT_FALSE(trainer.writes()) << "left by an attempt that is over";
}

TEST_F(Signs, AFileThatStaysIsLeftOver) {
  begin_write(2);
  EXPECT_TRUE(trainer.writes());
  clock.advance(31s);
  EXPECT_FALSE(trainer.writes());
  begin_write(2, "y");
  EXPECT_TRUE(trainer.writes()) << "the next one is a write";
}

TEST_F(Signs, AnAnnouncedEndIsInTheProgressFile) {
  disk.open_directory("/nvme/run/attempts", false)->open(claim_name(1), OpenMode::create);
  ProgressFile progress(disk, "/nvme/run", 1);
  const auto tell = [&](std::int64_t end) {
    progress.write({.attempt = 1, .beat = 1, .unix_ms = 1, .end_unix_ms = end});
    clock.advance(2s);
  };
  EXPECT_FALSE(trainer.end_is_announced());
  const auto in = [&](Duration left) {
    const auto end = clock.wall_now().time_since_epoch() + left;
    return std::chrono::duration_cast<std::chrono::milliseconds>(end).count();
  };
  tell(in(120s));
  EXPECT_TRUE(trainer.end_is_announced());
  tell(-1);
  EXPECT_FALSE(trainer.end_is_announced()) << "withdrawn";
  tell(in(10s));
  EXPECT_TRUE(trainer.end_is_announced());
  clock.advance(71s);
  EXPECT_FALSE(trainer.end_is_announced()) << "the machine lives on";
}

TEST_F(Signs, APaceWaitsBetweenBlocksAlone) {
  int given = 0;
  Pace pace(clock, 10, {}, [&] { ++given; });
  pace.poll();
  pace.wait(1s);
  EXPECT_EQ(given, 0);
  pace.moved(1);
  EXPECT_EQ(given, 1);
  pace.lift_limit();
  EXPECT_EQ(pace.limit(), 0);
  pace.restore_limit();
  EXPECT_EQ(pace.limit(), 10);
}

}}  // namespace holdfast::test
