// A file that is not the same at two moments, and what only a caller can get wrong: named, never believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/base/error.h"
#include "support/tensor_digests.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

constexpr std::uint64_t kAll = UINT64_MAX;

// The file behind it, with another size, or shorter than it says.
class Changed final : public File {
 public:
  Changed(std::unique_ptr<File> file, std::uint64_t readable, std::int64_t larger = 0)
      : file_(std::move(file)), readable_(readable), larger_(larger) {}

  std::uint64_t size() const override { return file_->size() + static_cast<std::uint64_t>(larger_); }
  std::size_t read_at(std::span<std::byte> to, std::uint64_t offset) const override {
    return file_->read_at(cut(to, offset), offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> to, std::uint64_t offset) const override {
    return file_->read_uncached_at(cut(to, offset), offset);
  }
  void write_at(std::span<const std::byte>, std::uint64_t) override {}
  void reserve(std::uint64_t) override {}
  void truncate(std::uint64_t) override {}
  void sync() override {}
  void close() override {}

 private:
  std::span<std::byte> cut(std::span<std::byte> to, std::uint64_t offset) const {
    return to.first(std::min<std::uint64_t>(to.size(), readable_ > offset ? readable_ - offset : 0));
  }

  std::unique_ptr<File> file_;
  std::uint64_t readable_;
  std::int64_t larger_;
};

class ChangingFile : public testing::Test {
 protected:
  ChangingFile() { write(disk_, "/a", made_); }

  Changed file(std::uint64_t readable = kAll, std::int64_t larger = 0) {
    return {disk_.open_file("/a", OpenMode::read), readable, larger};
  }
  CheckpointIndex index() { return std::get<CheckpointIndex>(read_index(file())); }
  template <class Value>
  static std::string reason(const std::variant<Value, Rejection>& read) {
    const auto* const rejection = std::get_if<Rejection>(&read);
    return rejection == nullptr ? "good" : rejection->reason;
  }
  static std::string reason(const std::optional<Rejection>& rejection) {
    return rejection ? rejection->reason : "good";
  }

  Made made_ = make_snapshot(small_tensors(), small_attributes());
  MemoryFileSystem disk_;
};

TEST_F(ChangingFile, ShorterThanItSaysIsDamageWhereverItEnds) {
  const std::uint64_t sealed = made_.plan->user_block;
  for (const std::uint64_t readable : {std::uint64_t{0}, std::uint64_t{100}, kHeaderSize, sealed - 1}) {
    EXPECT_THAT(reason(read_index(file(readable))), HasSubstr("became shorter")) << readable;
  }
  const CheckpointIndex good = index();
  const std::uint64_t tensor = made_.plan->layout->offset(0);
  for (const std::uint64_t readable : {sealed, sealed + 1, tensor + 1, good.file_length - 1}) {
    for (const ReadMode mode : {ReadMode::cached, ReadMode::uncached}) {
      EXPECT_THAT(reason(verify_bytes(file(readable), good, mode)), HasSubstr("became shorter")) << readable;
      EXPECT_THAT(reason(read_snapshot(file(readable), good, 2, mode)), HasSubstr("became shorter"));
    }
  }
  EXPECT_THAT(reason(read_tensors(file(tensor + 1), good, under("model/"))), HasSubstr("became shorter"));
}

TEST_F(ChangingFile, AnotherSizeThanTheIndexSaysIsDamage) {
  for (const std::int64_t larger : {1, -1, 4096}) {
    EXPECT_THAT(reason(verify_bytes(file(kAll, larger), index())), HasSubstr("changed its size")) << larger;
    EXPECT_THAT(reason(read_snapshot(file(kAll, larger), index())), HasSubstr("changed its size"));
    EXPECT_THAT(reason(read_tensors(file(kAll, larger), index(), under("model/"))),
                HasSubstr("changed its size"));
  }
}

// An index that did not come from read_index is held to the same rule: it tiles the file.
TEST_F(ChangingFile, AnIndexThatLeavesGapsIsRejected) {
  CheckpointIndex gap = index();
  gap.stretches.pop_back();
  EXPECT_THAT(reason(verify_bytes(file(), gap)), HasSubstr("index: "));
  EXPECT_THAT(reason(read_snapshot(file(), gap)), HasSubstr("index: "));
  EXPECT_THAT(reason(read_tensors(file(), gap, under("model/"))), HasSubstr("index: "));
}

TEST_F(ChangingFile, APartIsVerifiedByItself) {
  const CheckpointIndex good = index();
  EXPECT_EQ(reason(read_tensors(file(), good, under("model/"))), "good");
  disk_.flip_bit("/a", made_.plan->layout->offset(*made_.plan->layout->find("model/scale")));
  EXPECT_THAT(reason(read_tensors(file(), good, under("model/"))), HasSubstr("tensor model/scale"));
  EXPECT_EQ(reason(read_tensors(file(), good, under("rng/"))), "good");
}

TEST_F(ChangingFile, ProgressCountsEveryByteOnce) {
  std::atomic<std::uint64_t> progress{0};
  EXPECT_FALSE(verify_bytes(file(), index(), ReadMode::uncached, 2, &progress));
  EXPECT_EQ(progress, index().file_length - made_.plan->user_block);
}

// Larger than the blocks that are read at once: pieces of one tensor, read side by side.
TEST_F(ChangingFile, ALargeTensorIsReadInPieces) {
  const std::int64_t count = static_cast<std::int64_t>(2 * kTransferBlock + 12345);
  const Made made = make_snapshot({{"model/a", DType::int8, {count}}, {"model/b", DType::int8, {70000}}}, {});
  disk_ = MemoryFileSystem();
  write(disk_, "/a", made);
  const CheckpointIndex good = index();
  for (const ReadMode mode : {ReadMode::cached, ReadMode::uncached}) {
    EXPECT_EQ(reason(verify_bytes(file(), good, mode, 2)), "good");
    const auto read = read_snapshot(file(), good, 2, mode);
    ASSERT_EQ(reason(read), "good");
    const Snapshot& snapshot = *std::get<std::shared_ptr<Snapshot>>(read);
    EXPECT_TRUE(same_bytes(snapshot.bytes(0), made.snapshot->bytes(0)));
    EXPECT_TRUE(same_bytes(snapshot.bytes(1), made.snapshot->bytes(1)));
  }
  const std::uint64_t tensor = made.plan->layout->offset(0);
  for (const std::uint64_t lost : {std::uint64_t{1}, kTransferBlock, 2 * kTransferBlock + 12000}) {
    EXPECT_THAT(reason(read_snapshot(file(tensor + lost), good, 2, ReadMode::uncached)),
                HasSubstr("became shorter"))
        << lost;
  }
  disk_.flip_bit("/a", tensor + kTransferBlock + 5);
  EXPECT_THAT(reason(read_snapshot(file(), good)), HasSubstr("tensor model/a"));
}

TEST(Header, AnotherMagicNumberWithItsDigestInOrderIsNoCheckpoint) {
  std::vector<std::byte> file = small_file();
  file[kMagicAt] = std::byte{'h'};
  const auto digest_place = file.begin() + static_cast<std::ptrdiff_t>(kHeaderDigestAt);
  std::fill_n(digest_place, sizeof(Digest), std::byte{0});
  const Digest digest = digest_of(std::span(file).first(kHeaderSize));
  std::copy(digest.bytes.begin(), digest.bytes.end(), digest_place);
  EXPECT_THAT(judge(file), HasSubstr("not a Holdfast checkpoint"));
}

TEST(Seal, ASnapshotOfAnotherPlanOrSizeIsRefused) {
  const Made made = make_snapshot(small_tensors(), small_attributes());
  const std::vector<Digest> digests = tensor_digests(*made.snapshot);
  Snapshot longer = *made.snapshot;
  longer.arena = std::make_shared<Arena>(made.plan->layout->length() + 1);
  EXPECT_THROW(seal(longer, *made.plan, digests), Error);
  const Made other = make_snapshot(small_tensors(), small_attributes());
  EXPECT_THROW(seal(*made.snapshot, *other.plan, digests), Error);
}

// Bits of floats take more room in the index than decimals do in /meta/json: both are bounded.
TEST(Seal, AttributesThatOutgrowTheIndexAloneAreRefused) {
  Attributes attributes;
  attributes.set("halves", std::vector<double>(150, 0.5));
  const Made made = make_snapshot(small_tensors(), attributes);
  EXPECT_THROW(seal(*made.snapshot, *made.plan, tensor_digests(*made.snapshot)), RefusedError);
}

}}  // namespace holdfast::test
