// A file that several ranks write is the file of one process, and the ranks learn how it ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "support/captured_log.h"
#include "support/gate.h"
#include "support/shared_world.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using Outcome = SharedOutcome::Kind;

std::string path_in_run(const std::string& name) { return std::string(kSharedRun) + "/" + name; }

TEST(SharedWrite, MakesTheFileOfOneProcess) {
  for (const std::vector<bool>& sees :
       std::vector<std::vector<bool>>{{true}, {true, true}, {true, true, true, true}, {true, false, true}}) {
    // With tensors of several pieces in one of the worlds, but where every access is watched.
#if defined(__SANITIZE_THREAD__)
    const std::int64_t large = 30000;
#else
    const std::int64_t large = sees.size() == 2 ? (9 << 20) / 4 : 30000;
#endif
    MemoryFileSystem disk;
    SharedWorld world(disk, {.sees = sees, .tensors = shared_tensors(static_cast<int>(sees.size()), large)});
    const int handles = disk.open_handles();
    for (const std::int64_t step : {10, 20}) {
      const auto all = world.whole(step);
      const auto outcomes = world.save(*all);
      for (const SharedOutcome& outcome : outcomes) {
        ASSERT_EQ(outcome.kind, Outcome::committed) << outcome.reason;
        EXPECT_EQ(outcome.checkpoint, outcomes[0].checkpoint);
        EXPECT_EQ(outcome.bytes, world.plan().layout->length());
      }
      EXPECT_TRUE(disk.get(path_in_run(outcomes[0].checkpoint)) == world.alone(*all)) << "step " << step;
    }
    EXPECT_TRUE(shared_names(disk, "tmp-").empty());
    EXPECT_EQ(disk.open_handles(), handles);
  }
}

// With the machine's own alignment rules.
TEST(SharedWrite, MakesItOnTheMachinesDiskToo) {
  std::string folder = (std::filesystem::temp_directory_path() / "holdfast-shared-XXXXXX").native();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    SharedWorld world(FileSystem::real(), {.run = folder + "/run"});
    const auto all = world.whole(10);
    const auto outcomes = world.save(*all);
    ASSERT_EQ(outcomes[0].kind, Outcome::committed) << outcomes[0].reason;
    EXPECT_EQ(outcomes[2].checkpoint, outcomes[0].checkpoint);
    const auto file = FileSystem::real().open_file(folder + "/run/" + outcomes[0].checkpoint, OpenMode::read);
    std::vector<std::byte> bytes(file->size());
    file->read_at(bytes, 0);
    EXPECT_TRUE(bytes == world.alone(*all));
  }
  std::filesystem::remove_all(folder);
}

TEST(SharedWrite, EveryRankWritesItsBlocksAndTheHeadComesLast) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  std::mutex mutex;
  std::vector<std::pair<int, Operation>> writes;
  for (int r = 0; r < world.ranks(); ++r) {
    world.faults[static_cast<std::size_t>(r)]->set_hook([&, r](const Operation& operation) {
      if (operation.kind != Op::write && operation.kind != Op::sync_file) return;
      const std::lock_guard lock(mutex);
      writes.emplace_back(r, operation);
    });
  }
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  std::vector<std::uint64_t> bytes(3);
  std::set<int> synced;
  for (const auto& [rank, operation] : writes) {
    if (operation.path.find("/tmp-") == std::string::npos) continue;
    if (operation.kind == Op::sync_file) {
      synced.insert(rank);
      continue;
    }
    bytes[static_cast<std::size_t>(rank)] += operation.length;
    if (operation.offset >= world.plan().head) continue;
    EXPECT_EQ(rank, 0);
    EXPECT_EQ(synced, (std::set<int>{1, 2})) << "the head was written before a rank was through";
  }
  for (std::size_t r = 0; r < 3; ++r) {
    std::uint64_t own = 0;
    for (const ByteRange& range : world.shares().ranks[r].writes) own += range.size();
    if (r == 0) {
      for (const ByteRange& range : world.shares().late) own += range.size();
      own += world.plan().head;
    }
    EXPECT_EQ(bytes[r], own) << "rank " << r;
    EXPECT_GT(own, 4096u * 10);
  }
}

TEST(SharedWrite, TakesThreeMessagesAndLeavesNoOldOnes) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  for (int save = 1; save <= 4; ++save) {
    world.save(10 * save);
    EXPECT_EQ(world.mail.told(0), 2 * save);
    EXPECT_EQ(world.mail.told(1), save);
    EXPECT_EQ(world.mail.kept(), 4u * std::min(save, 3));  // those of the last three
    world.clock().advance(std::chrono::minutes(16));       // nobody waits so long
  }
}

TEST(SharedWrite, AStepThatIsHeldAlreadyIsNotWrittenAgain) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  const auto first = world.save(10);
  const int mutations = world.faults[1]->mutation_count();
  const auto again = world.save(10);
  for (const SharedOutcome& outcome : again) {
    EXPECT_EQ(outcome.kind, Outcome::committed);
    EXPECT_EQ(outcome.checkpoint, first[0].checkpoint);
  }
  EXPECT_EQ(world.faults[1]->mutation_count(), mutations);
}

TEST(SharedWrite, ANumberThatIsNotFiniteIsSeenOnWhicheverRank) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  const auto finite_in = [&](const std::string& name) {
    const auto file = disk.open_file(path_in_run(name), OpenMode::read);
    return std::get<CheckpointIndex>(read_index(*file)).attributes.get_bool(kRunFinite);
  };
  EXPECT_TRUE(finite_in(world.save(10)[0].checkpoint));
  for (int rank = 0; rank < world.ranks(); ++rank) {
    const auto all = world.whole(20 + rank);
    for (const std::size_t i : world.shares().ranks[static_cast<std::size_t>(rank)].pieces) {
      const SharedPiece& piece = world.shares().pieces[i];
      if (world.plan().layout->tensors()[piece.tensor].dtype != DType::float32) continue;
      const float infinity = std::numeric_limits<float>::infinity();
      std::memcpy(&all->arena->bytes()[piece.bytes.end - sizeof infinity], &infinity, sizeof infinity);
      break;
    }
    const auto outcomes = world.save(*all);
    ASSERT_EQ(outcomes[0].kind, Outcome::committed) << outcomes[0].reason;
    EXPECT_FALSE(finite_in(outcomes[0].checkpoint)) << "rank " << rank;
    // In what is not trained it is legitimate.
    all->step += 10;
    all->attributes = world.attributes(all->step);
    all->trained.assign(world.plan().layout->tensors().size(), false);
    const auto buffers = world.save(*all);
    ASSERT_EQ(buffers[0].kind, Outcome::committed) << buffers[0].reason;
    EXPECT_TRUE(finite_in(buffers[0].checkpoint)) << "rank " << rank;
  }
}

TEST(SharedWrite, ANewerAttemptEndsItForAll) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  disk.put(path_in_run("attempts/2"), "");
  for (const SharedOutcome& outcome : world.save(20)) {
    EXPECT_EQ(outcome.kind, Outcome::superseded) << outcome.reason;
    EXPECT_THAT(outcome.reason, HasSubstr("attempt 2"));
  }
}

TEST(SharedWrite, RanksThatPlanOtherFilesWriteNothing) {
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  SharedSave other;
  other.plan = make_file_plan(shared_tensors(3, 40000), 4096);
  other.shares = std::make_shared<const Shares>(
      divide(*other.plan, {{true, true, true}, shared_owners(other.plan->layout->tensors())}));
  world.plan_otherwise(2, other);
  for (const SharedOutcome& outcome : world.save(10)) {
    EXPECT_EQ(outcome.kind, Outcome::failed);
    EXPECT_THAT(outcome.reason, HasSubstr("rank 2 could not write its share: it plans another file"));
  }
  EXPECT_EQ(world.faults[2]->count(Op::open_overwrite), 0);
  EXPECT_TRUE(shared_names(disk, "tmp-").empty());
}

TEST(SharedWrite, WhoCannotTakePartSaysSo) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  std::thread declines([&] { world.writer(1).decline(10, "no memory for the image"); });
  const auto outcomes = world.save(*world.whole(10), {1});
  declines.join();
  for (const int r : {0, 2}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(r)].kind, Outcome::failed);
    EXPECT_THAT(outcomes[static_cast<std::size_t>(r)].reason, HasSubstr("rank 1"));
    EXPECT_THAT(outcomes[static_cast<std::size_t>(r)].reason, HasSubstr("no memory for the image"));
  }
  std::thread other([&] { world.writer(0).decline(20, "no memory for the image"); });
  const auto later = world.save(*world.whole(20), {0});
  other.join();
  for (const int r : {1, 2}) {
    EXPECT_EQ(later[static_cast<std::size_t>(r)].kind, Outcome::failed);
    EXPECT_THAT(later[static_cast<std::size_t>(r)].reason, HasSubstr("rank 0 could not save: no memory"));
  }
  EXPECT_EQ(world.save(30)[0].kind, Outcome::committed);
}

}}  // namespace holdfast::test
