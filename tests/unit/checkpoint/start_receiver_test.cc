// A rank other than 0 believes nothing that it receives: not the head, not the file, not the volume.
#include "holdfast/checkpoint/internal/start/start_receiver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "holdfast/ranks/received_file.h"
#include "rig.h"
#include "support/memory_world.h"

namespace holdfast::test { namespace {

using internal::StartReceiver;
using ReceivedVerdict = internal::Verdict;

constexpr char kFile[] = "step-000000000003-a0001.h5";

class StartReceiverTest : public testing::Test {
 protected:
  // Rank 0's checkpoint of step 3.
  StartReceiverTest() {
    {
      Attempt rank_0(volume.options(), {.rank = 0});
      rank_0.train_to(3);
      EXPECT_EQ(rank_0.checkpointer.finish(), 0);
    }
    bytes = volume.disk.get(volume.path(kFile));
  }
  // This rank, 1 of 2. `sees`: the volume is mounted here as well.
  void start(bool sees, double learning_rate = 0.1) {
    source.emplace(MemorySource::Options{.learning_rate = learning_rate, .rank = 1});
    group.emplace(world.rank(1), *source);
    group->determine_volume({true, sees});
    run.emplace(group->source(), volume.options());
    finder.emplace(*run);
    receiver.emplace(*run, *group, *finder);
  }
  std::vector<std::byte> head() {
    const auto file = volume.disk.open_file(volume.path(kFile), OpenMode::read);
    const auto index = read_index(*file);
    const auto size = std::get<CheckpointIndex>(index).user_block;
    return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  ReceivedVerdict verdict() {
    const auto file = volume.disk.open_file(volume.path(kFile), OpenMode::read);
    return {.attempt = 2,
            .fresh = false,
            .checkpoint = kFile,
            .durable = 3,
            .bytes = bytes.size(),
            .index = internal::index_digest(*file)};
  }
  // Rank 0 sends these bytes, and this rank starts as told.
  internal::StartedRun receive(const ReceivedVerdict& told, std::vector<std::byte> sent) {
    world.rank(0).broadcast(sent);
    return receiver->load(told, receiver->receive(told));
  }

  Volume volume;
  CapturedLog log;
  MemoryWorld world{2};
  std::vector<std::byte> bytes;
  std::optional<MemorySource> source;
  std::optional<internal::RankGroup> group;
  std::optional<internal::Run> run;
  std::optional<internal::StartFinder> finder;
  std::optional<StartReceiver> receiver;
};

TEST_F(StartReceiverTest, AHeadOfRank0sCheckpointIsAccepted) {
  start(false);
  EXPECT_NO_THROW(receiver->check_head(head(), bytes.size()));
}

TEST_F(StartReceiverTest, AHeadOfAnotherStateIsRefused) {
  start(false, 0.2);
  EXPECT_THROW(receiver->check_head(head(), bytes.size()), RefusedError);
}

TEST_F(StartReceiverTest, AHeadThatIsShortWrongOrHugeIsNoHead) {
  start(false);
  const std::vector<std::byte> good = head();
  const auto expect_no_head = [&](std::vector<std::byte> sent, std::uint64_t file_bytes) {
    expect_unreadable([&] { receiver->check_head(std::move(sent), file_bytes); }, EIO,
                      "rank 0 sent something else");
  };
  expect_no_head({}, bytes.size());
  for (const std::size_t length : {std::size_t{1}, std::size_t{63}, std::size_t{4096}, good.size() - 1}) {
    expect_no_head({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}, bytes.size());
  }
  expect_no_head(std::vector<std::byte>(good.size(), std::byte{0xff}), bytes.size());
  expect_no_head(good, bytes.size() - 1);
  expect_no_head(good, 0);
  expect_no_head(good, ~std::uint64_t{0});
  for (const std::size_t at : {std::size_t{9}, std::size_t{30}, std::size_t{4096}}) {
    std::vector<std::byte> flipped = good;
    flipped[at] ^= std::byte{1};
    expect_no_head(flipped, bytes.size());
  }
}

TEST_F(StartReceiverTest, TheStateComesFromRank0) {
  start(false);
  const auto started = receive(verdict(), bytes);
  EXPECT_EQ(started.resumed.step, 3);
  EXPECT_FALSE(started.resumed.fresh);
  EXPECT_EQ(started.record.attempt, 2U);
  EXPECT_EQ(started.durable.step, 3);
  EXPECT_EQ(source->step(), 3);
  EXPECT_EQ(source->loads, 1);
}

TEST_F(StartReceiverTest, BytesThatChangeOnTheWayAreNotLoaded) {
  start(false);
  for (const std::size_t at : {std::size_t{4096}, bytes.size() / 2, bytes.size() - 1000}) {
    std::vector<std::byte> flipped = bytes;
    flipped[at] ^= std::byte{1};
    expect_unreadable([&] { receive(verdict(), flipped); }, EIO, "rank 0 sent something else");
  }
  EXPECT_EQ(source->loads, 0);
}

TEST_F(StartReceiverTest, AFileThatIsCutOffIsNotLoaded) {
  start(false);
  for (const std::size_t length : {std::size_t{1}, std::size_t{4096}, bytes.size() - 1}) {
    ReceivedVerdict told = verdict();
    told.bytes = length;
    const std::vector<std::byte> sent(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    expect_unreadable([&] { receive(told, sent); }, EIO, "rank 0 sent something else");
  }
  EXPECT_EQ(source->loads, 0);
}

TEST_F(StartReceiverTest, ARankThatSeesTheVolumeReadsItThere) {
  start(true);
  const ReceivedVerdict told = verdict();
  EXPECT_EQ(receiver->receive(told), nullptr) << "all see it, so nothing is sent";
  EXPECT_EQ(receiver->load(told, nullptr).resumed.step, 3);
  EXPECT_EQ(world.broadcast(), 0U);
}

TEST_F(StartReceiverTest, AnotherFileOnItsVolumeIsNotTheRun) {
  start(true);
  ReceivedVerdict told = verdict();
  told.index.front() = told.index.front() == '0' ? '1' : '0';
  expect_unreadable([&] { receiver->load(told, nullptr); }, EIO, "another file than rank 0 reads there");
  told.checkpoint = "step-000000000009-a0001.h5";
  expect_unreadable([&] { receiver->load(told, nullptr); }, ENOENT, "is it the same volume here?");
  EXPECT_EQ(source->loads, 0);
}

TEST_F(StartReceiverTest, DamageThatItSeesOnTheVolumeIsNotLoaded) {
  start(true);
  const ReceivedVerdict told = verdict();
  volume.disk.flip_bit(volume.path(kFile), bytes.size() - 1000);
  expect_unreadable([&] { receiver->load(told, nullptr); }, EIO, "damaged as this rank sees it");
  EXPECT_EQ(source->loads, 0);
}

TEST_F(StartReceiverTest, AFreshStartLoadsNothing) {
  start(false);
  ReceivedVerdict told;
  told.attempt = 7;
  EXPECT_EQ(receiver->receive(told), nullptr);
  const auto started = receiver->load(told, nullptr);
  EXPECT_TRUE(started.resumed.fresh);
  EXPECT_EQ(started.record.attempt, 7U);
  EXPECT_EQ(started.record.world_size, 2);
  EXPECT_EQ(source->loads, 0);
}

TEST_F(StartReceiverTest, AFreshStartAfterTheFirstUpdateIsAMistake) {
  start(false);
  source->advance(source->train());
  EXPECT_THROW(receiver->load(ReceivedVerdict(), nullptr), UsageError);
}

TEST(IndexDigest, TellsFilesApartAndNamesDamage) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  run.train_to(2);
  const auto digest = [&](const std::string& name) {
    return internal::index_digest(*volume.disk.open_file(volume.path(name), OpenMode::read));
  };
  const std::string one = digest("step-000000000001-a0001.h5");
  EXPECT_EQ(one, digest("step-000000000001-a0001.h5"));
  EXPECT_NE(one, digest("step-000000000002-a0001.h5"));
  volume.disk.put(volume.path("cut"), "HOLDFAST");
  EXPECT_EQ(digest("cut"), "damaged");
}

}}  // namespace holdfast::test
