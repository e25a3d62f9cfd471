// Copies that a device makes: whatever the training does next, the image gets the bytes of the moment.
#include "holdfast/snapshot/device_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/piece_digests.h"
#include "support/fake_device.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Wanted {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t element = 4;
  bool early = false;
};

// Device memory with random bytes, and the image it goes to.
struct Memory {
  explicit Memory(std::vector<Wanted> list) : wanted(std::move(list)), image(size()) {
    std::minstd_rand random(7);
    for (const Wanted& one : wanted) {
      auto& bytes = tensors.emplace_back(one.bytes);
      for (std::byte& value : bytes) value = static_cast<std::byte>(random());
    }
    before = tensors;
  }
  ~Memory() {
    device.training.drain();
    device.copying.drain();
  }

  std::uint64_t size() const { return wanted.back().offset + wanted.back().bytes + 16; }

  DeviceShare share() {
    std::vector<std::span<const std::byte>> live(tensors.begin(), tensors.end());
    DeviceShare share;
    share.device =
        std::make_unique<FakeCopyDevice>(device, std::move(live), [this](auto*) { return locked; });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      share.tensors.push_back({"t" + std::to_string(i), wanted[i].element, wanted[i].early,
                               image.bytes().subspan(wanted[i].offset, wanted[i].bytes)});
    }
    return share;
  }
  std::unique_ptr<DeviceCopy> begin(NextUpdate update = NextUpdate::announced) {
    std::vector<DeviceShare> shares;
    shares.push_back(share());
    return DeviceCopy::begin(std::move(shares), locked, update);
  }
  // Queued: every byte changes; only the early ones when `early`.
  void train(bool early = false) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (early && !wanted[i].early) continue;
      device.training.add([&bytes = tensors[i]] {
        for (std::byte& value : bytes) value ^= std::byte{0x5A};
      });
    }
  }
  // The image holds what was there at first, and nothing else.
  bool image_is_before() {
    std::vector<std::byte> expected(image.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      std::copy(before[i].begin(), before[i].end(), expected.data() + wanted[i].offset);
    }
    return std::equal(expected.begin(), expected.end(), image.bytes().begin());
  }

  std::vector<Wanted> wanted;
  std::vector<std::vector<std::byte>> tensors, before;
  Arena image;
  bool locked = true;
  FakeDevice device;
};

std::vector<Wanted> several() {
  return {{64, 400}, {464, 20}, {500, 4000, 4, true}, {8192, 100000}, {200001, 80, 8}, {200081, 8, 8, true}};
}

TEST(DeviceCopy, SetAsideItDrainsBehindTheNextSteps) {
  Memory memory(several());
  const auto copy = memory.begin(NextUpdate::unannounced);
  EXPECT_TRUE(copy->on_its_way());
  EXPECT_TRUE(copy->independent());
  for (int i = 0; i < 3; ++i) memory.train();
  copy->arrive();
  EXPECT_FALSE(copy->on_its_way());
  EXPECT_TRUE(memory.image_is_before());
  EXPECT_EQ(memory.device.at_once, 0);
  EXPECT_THAT(copy->changed(), IsEmpty()) << "what was set aside may change";
}

TEST(DeviceCopy, NeighboursAreFetchedTogether) {
  Memory memory({{64, 400}, {464, 20}, {484, 4000}, {8192, 100}});
  memory.begin()->arrive();
  EXPECT_EQ(memory.device.fetched, 2);
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, NoTensorIsSetAsideAtAnAddressItsElementsCannotHave) {
  struct Watching : FakeCopyDevice {
    using FakeCopyDevice::FakeCopyDevice;
    void set_aside(std::span<const SparePlace> places) override {
      for (const auto& [index, offset] : places) seen->emplace(index, offset);
      FakeCopyDevice::set_aside(places);
    }
    std::map<std::size_t, std::uint64_t>* seen = nullptr;
  };
  Memory memory({{3, 6, 2}, {9, 10, 2}, {19, 1, 1}, {20, 16, 8}, {36, 8, 8}});
  std::vector<std::span<const std::byte>> live(memory.tensors.begin(), memory.tensors.end());
  auto device = std::make_unique<Watching>(memory.device, live, [](auto*) { return true; });
  std::map<std::size_t, std::uint64_t> seen;
  device->seen = &seen;
  std::vector<DeviceShare> shares;
  shares.push_back(memory.share());
  shares.back().device = std::move(device);
  DeviceCopy::begin(std::move(shares), true, NextUpdate::announced)->arrive();
  ASSERT_EQ(seen.size(), 5u);
  for (const auto& [index, offset] : seen) EXPECT_EQ(offset % memory.wanted[index].element, 0u) << index;
  EXPECT_EQ(seen[1], seen[0] + 6);  // still neighbours
  EXPECT_EQ(seen[4], seen[3] + 16);
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, WithoutRoomTheUpdateWaitsOnTheDevice) {
  Memory memory(several());
  memory.device.room = 8192;  // enough for what changes early
  FakeEvent open;
  memory.device.before_fetch = [&open] { open.wait(); };
  const auto copy = memory.begin(NextUpdate::announced);
  EXPECT_FALSE(copy->independent());
  EXPECT_GT(memory.device.live, 0);
  memory.train(true);   // a forward pass
  copy->hold_update();  // returns although nothing has been copied
  memory.train();       // the update
  EXPECT_EQ(memory.device.holds, 1);
  EXPECT_TRUE(copy->on_its_way());
  open.set();
  copy->arrive();
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, ALoopThatDoesNotAnnounceIsNeverGated) {
  Memory memory(several());
  memory.device.room = 8192;
  const auto copy = memory.begin(NextUpdate::unannounced);
  EXPECT_FALSE(copy->on_its_way());
  EXPECT_TRUE(copy->independent());
  EXPECT_EQ(memory.device.at_once, 1);
  memory.train();
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, WithoutRoomOrLockedPagesItIsCopiedAtOnce) {
  Memory memory(several());
  memory.device.room = 8192;
  memory.locked = false;
  EXPECT_FALSE(memory.begin(NextUpdate::announced)->on_its_way());
  EXPECT_EQ(memory.device.at_once, 1);
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, WithoutAnyRoomItIsCopiedAtOnce) {
  Memory memory(several());
  memory.device.room = 16;
  EXPECT_FALSE(memory.begin(NextUpdate::announced)->on_its_way());
  EXPECT_EQ(memory.device.at_once, 1);
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, AShareMayAskForIt) {
  Memory memory(several());
  std::vector<DeviceShare> shares;
  shares.push_back(memory.share());
  shares.back().at_once = true;
  const auto copy = DeviceCopy::begin(std::move(shares), true, NextUpdate::announced);
  EXPECT_FALSE(copy->on_its_way());
  EXPECT_EQ(memory.device.reserved, 0);
  EXPECT_TRUE(memory.image_is_before());
}

// Wherever the image lies: pieces end at addresses.
TEST(DeviceCopy, NoTransferCrossesAPiece) {
  const std::uint64_t large = DeviceCopy::kPiece + 10000;
  for (const bool room : {true, false}) {
    Memory memory({{4096, large}, {4096 + large, 100}});
    if (!room) memory.device.room = 8192;
    memory.begin(NextUpdate::announced)->arrive();
    std::uint64_t longest = 0;
    int fetches = room ? 0 : 1;  // the second tensor's own
    const auto first = reinterpret_cast<std::uintptr_t>(memory.image.bytes().data()) + 4096;
    const auto end = first + large + (room ? 100 : 0);
    for (auto at = first; at < end; ++fetches) {
      const auto next = std::min(end, (at / DeviceCopy::kPiece + 1) * DeviceCopy::kPiece);
      longest = std::max(longest, next - at);
      at = next;
    }
    EXPECT_EQ(memory.device.longest_fetch, longest);
    EXPECT_EQ(memory.device.fetched, fetches);
    EXPECT_TRUE(memory.image_is_before());
  }
}

TEST(DeviceCopy, ThroughABounceWherePagesAreNotLocked) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{8192}, std::size_t{2} << 20}) {
    Memory memory(several());
    memory.locked = false;
    memory.device.bounce.resize(size);
    std::vector<DeviceShare> shares;
    DeviceShare share = memory.share();
    share.device = std::make_unique<FakeCopyDevice>(
        memory.device, std::vector<std::span<const std::byte>>(memory.tensors.begin(), memory.tensors.end()),
        [&](const std::byte* to) {
          return to < memory.image.bytes().data() || to >= &memory.image.bytes().back();
        });
    shares.push_back(std::move(share));
    const auto copy = DeviceCopy::begin(std::move(shares), false, NextUpdate::unannounced);
    EXPECT_TRUE(copy->independent());
    memory.train();
    copy->arrive();
    EXPECT_TRUE(memory.image_is_before()) << size;
    if (size > 0) {
      EXPECT_LE(memory.device.longest_fetch, size / 2);
    }
  }
}

TEST(DeviceCopy, AFailedCopySaysSoAndLeavesNothingBehind) {
  for (const bool room : {true, false}) {
    Memory memory(several());
    if (!room) memory.device.room = 8192;
    const std::uint64_t at_first = memory.device.room;
    memory.device.fail_fetch = 1;
    auto copy = memory.begin(NextUpdate::announced);
    try {
      copy->arrive();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a copy failed"));
    }
    EXPECT_TRUE(copy->on_its_way());
    copy.reset();
    EXPECT_EQ(memory.device.room, at_first);
  }
}

TEST(DeviceCopy, DroppedItWaitsForWhatIsOnItsWay) {
  for (const bool room : {true, false}) {
    Memory memory(several());
    if (!room) memory.device.room = 8192;
    const std::uint64_t at_first = memory.device.room;
    std::atomic<bool> late{false};
    memory.device.before_fetch = [&late] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      late = true;
    };
    memory.begin(NextUpdate::announced).reset();
    EXPECT_EQ(late, !room);
    EXPECT_EQ(memory.device.room, at_first);
    const std::vector<std::byte> image(memory.image.bytes().begin(), memory.image.bytes().end());
    memory.device.copying.drain();
    EXPECT_TRUE(std::equal(image.begin(), image.end(), memory.image.bytes().begin()));
  }
}

TEST(DeviceCopy, ADeviceThatCannotWaitIsWaitedFor) {
  Memory memory(several());
  memory.device.room = 8192;
  memory.device.cannot_hold = true;
  const auto copy = memory.begin(NextUpdate::announced);
  copy->hold_update();
  memory.train();
  copy->arrive();
  EXPECT_TRUE(memory.image_is_before());
}

TEST(DeviceCopy, EachDeviceTakesItsOwnWay) {
  Memory first(several());
  Memory second(several());
  second.device.room = 8192;
  std::vector<DeviceShare> shares;
  shares.push_back(first.share());
  shares.push_back(second.share());
  const auto copy = DeviceCopy::begin(std::move(shares), true, NextUpdate::announced);
  EXPECT_FALSE(copy->independent());
  first.train();
  copy->hold_update();
  second.train();
  copy->arrive();
  EXPECT_TRUE(first.image_is_before());
  EXPECT_TRUE(second.image_is_before());
  EXPECT_EQ(first.device.holds, 0);
}

TEST(DeviceCopy, WhatChangedBeforeItsUpdateIsNamed) {
  Memory memory(several());
  memory.device.room = 8192;
  const auto copy = memory.begin(NextUpdate::announced);
  copy->arrive();
  EXPECT_THAT(copy->changed(), IsEmpty());
  memory.train(true);
  EXPECT_THAT(copy->changed(), IsEmpty()) << "these may";
  memory.device.training.add([&] { memory.tensors[3][5] ^= std::byte{1}; });
  EXPECT_THAT(copy->changed(), ElementsAre("t3"));
}

struct HostCopy final : LateCopy {
  void run() noexcept override { ++runs; }
  std::vector<std::string> changed() const override { return {"host"}; }
  int runs = 0;
};

TEST(DeviceCopy, JoinedWithAHostsPart) {
  Memory memory(several());
  for (const bool now : {false, true}) {
    auto host = std::make_unique<HostCopy>();
    HostCopy& part = *host;
    const auto both = join_copies(std::move(host), memory.begin(NextUpdate::announced), now);
    EXPECT_EQ(part.runs, now ? 1 : 0);
    EXPECT_EQ(both->independent(), now);
    EXPECT_TRUE(both->on_its_way());
    both->run();
    both->arrive();
    EXPECT_FALSE(both->on_its_way());
    EXPECT_EQ(both->changed(), now ? std::vector<std::string>{} : std::vector<std::string>{"host"});
  }
}

// The digests of what arrived, as a writer would get them.
class Digested {
 public:
  explicit Digested(Memory& memory) {
    std::vector<TensorSpec> tensors;
    std::vector<std::uint64_t> offsets;
    for (const Wanted& one : memory.wanted) {
      tensors.push_back(
          {"t" + std::to_string(tensors.size()), DType::uint8, {static_cast<std::int64_t>(one.bytes)}});
      offsets.push_back(one.offset);
    }
    snapshot_.layout =
        std::make_shared<ImageLayout>(std::move(tensors), std::move(offsets), memory.image.size());
    snapshot_.arena = std::shared_ptr<Arena>(&memory.image, [](Arena*) {});
    digests.emplace(snapshot_);
  }
  // How many are known; all that are known fit the image.
  std::size_t right() {
    std::size_t known = 0;
    for (std::size_t i = 0; i < digests->pieces().size(); ++i) {
      const Inspected* const found = digests->find(i);
      if (found == nullptr) continue;
      ++known;
      EXPECT_EQ(found->digest, digest_of(snapshot_.bytes(i))) << i;
    }
    return known;
  }
  std::optional<PieceDigests> digests;

 private:
  Snapshot snapshot_;
};

TEST(DeviceCopy, WhatWasSetAsideIsDigestedAsItArrives) {
  for (const std::size_t bounce : {0, 128, 4096, 300'000}) {
    Memory memory(several());
    memory.locked = bounce == 0;
    memory.device.bounce.resize(bounce);
    Digested digested(memory);
    const auto copy = memory.begin(NextUpdate::unannounced);
    memory.train();
    copy->arrive_digesting(*digested.digests);
    EXPECT_FALSE(copy->on_its_way());
    EXPECT_TRUE(memory.image_is_before()) << bounce;
    EXPECT_EQ(digested.right(), memory.wanted.size()) << bounce;
  }
}

TEST(DeviceCopy, ManyTinyTensorsAreDigestedToo) {
  std::vector<Wanted> tiny;
  for (std::uint64_t i = 0; i < 100; ++i) tiny.push_back({i * 1000, 8});
  Memory memory(tiny);
  Digested digested(memory);
  memory.begin(NextUpdate::unannounced)->arrive_digesting(*digested.digests);
  EXPECT_TRUE(memory.image_is_before());
  EXPECT_EQ(digested.right(), tiny.size());
}

TEST(DeviceCopy, WhatIsFetchedFromLiveMemoryIsLeftToTheWriter) {
  Memory memory(several());
  memory.device.room = 8192;
  Digested digested(memory);
  const auto copy = memory.begin();
  copy->arrive_digesting(*digested.digests);
  EXPECT_TRUE(memory.image_is_before());
  EXPECT_EQ(digested.right(), 0u);
}

}}  // namespace holdfast::test
