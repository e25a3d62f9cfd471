#include "holdfast/snapshot/snapshot.h"

#include <gtest/gtest.h>

#include <cstring>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

Snapshot make(std::vector<TensorSpec> specs, std::vector<std::uint64_t> offsets,
              std::uint64_t length = 4096) {
  Snapshot snapshot;
  snapshot.layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), length);
  snapshot.arena = std::make_shared<Arena>(length);
  for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
    const std::string& name = snapshot.layout->tensors()[i].name;
    const auto slot = snapshot.layout->slot(i, snapshot.arena->bytes());
    std::memset(slot.data(), name.back(), slot.size());
  }
  snapshot.attributes.set("step", std::int64_t{7});
  snapshot.attributes.set("lr", 0.1);
  return snapshot;
}

const TensorSpec kA{"model/a", DType::float32, {2, 3}};
const TensorSpec kB{"model/b", DType::int64, {}};
const TensorSpec kNone{"model/none", DType::int64, {0}};

TEST(ImageLayout, FindsTensorsAndTheirBytes) {
  const Snapshot snapshot = make({kA, kB, kNone}, {100, 4088, 4096});
  EXPECT_EQ(snapshot.layout->find("model/b"), 1u);
  EXPECT_EQ(snapshot.layout->find("model/c"), std::nullopt);
  EXPECT_EQ(snapshot.bytes(1).size(), 8u);
  EXPECT_EQ(snapshot.bytes(1).data(), std::as_const(*snapshot.arena).bytes().data() + 4088);
  EXPECT_EQ(snapshot.find("model/a")->size(), 24u);
  EXPECT_TRUE(snapshot.bytes(2).empty());
  EXPECT_FALSE(snapshot.find("model"));
}

TEST(ImageLayout, RefusesTensorsOutsideTheImage) {
  EXPECT_THROW(make({kA}, {4090}), Error);
  EXPECT_THROW(make({kA}, {~0ull}), Error);
  EXPECT_THROW(make({kA, kB}, {0}), Error);
}

TEST(StateDigest, IsIndependentOfOrderAndPlace) {
  const Digest digest = state_digest(make({kA, kB, kNone}, {0, 64, 0}));
  EXPECT_EQ(state_digest(make({kNone, kB, kA}, {5, 1000, 2000})), digest);
  // Frozen: tools outside compare it between versions.
  EXPECT_EQ(to_hex(digest), "b425dbcb231e17bc1b042c458c541517");
}

TEST(StateDigest, SeesEverythingThatDecides) {
  const auto fresh = [] { return make({kA, kB}, {0, 64}); };
  const Digest digest = state_digest(fresh());
  const auto changed = [&](auto&& change) {
    Snapshot snapshot = fresh();
    change(snapshot);
    return state_digest(snapshot) != digest;
  };
  EXPECT_FALSE(changed([](Snapshot&) {}));
  EXPECT_TRUE(changed([](Snapshot& s) { s.arena->bytes()[23] ^= std::byte{1}; }));
  EXPECT_TRUE(changed([](Snapshot& s) { s.attributes.set("lr", 0.2); }));
  EXPECT_TRUE(changed([](Snapshot& s) { s.attributes.set("step", 7.0); }));
  EXPECT_TRUE(changed([](Snapshot& s) { s.attributes.erase("lr"); }));
  EXPECT_TRUE(changed([](Snapshot& s) { s.attributes.set("more", std::string()); }));
  EXPECT_FALSE(changed([](Snapshot& s) { s.attributes.set("host", std::string("x"), Role::record); }));
  EXPECT_FALSE(changed([](Snapshot& s) { s.arena->bytes()[24] = std::byte{1}; }));

  EXPECT_NE(state_digest(make({{"model/a", DType::float32, {3, 2}}, kB}, {0, 64})), digest);
  EXPECT_NE(state_digest(make({{"model/a", DType::int32, {2, 3}}, kB}, {0, 64})), digest);
  EXPECT_NE(state_digest(make({{"other/a", DType::float32, {2, 3}}, kB}, {0, 64})), digest);
}

TEST(StateDigest, TakesDigestsThatAreKnown) {
  const Snapshot snapshot = make({kA, kB}, {0, 64});
  const std::vector<Digest> known{tensor_digest(snapshot.bytes(0)), tensor_digest(snapshot.bytes(1))};
  EXPECT_EQ(state_digest(snapshot, known), state_digest(snapshot));
  EXPECT_THROW(state_digest(snapshot, std::span(known).first(1)), Error);
}

}}  // namespace holdfast
