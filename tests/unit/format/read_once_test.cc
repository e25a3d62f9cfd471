// What a read touches: each block of 4096 bytes once, a large file's from the device alone, and of a part
// nothing but the blocks that it lies in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <utility>

#include "holdfast/format/safetensors_export.h"
#include "support/forwarding.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

struct Read {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool uncached = false;
};

// Remembers what was asked for. Like a device it delivers whole blocks, with whatever lies behind the end.
class Watched final : public ForwardingFile {
 public:
  using ForwardingFile::ForwardingFile;

  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    note({offset, buffer.size(), false});
    return ForwardingFile::read_at(buffer, offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    note({offset, buffer.size(), true});
    const std::size_t count = ForwardingFile::read_uncached_at(buffer, offset);
    const auto behind = buffer.subspan(count);
    std::fill(behind.begin(), behind.end(), std::byte{0xEE});
    return count;
  }

  // In their order in the file.
  std::vector<Read> take() {
    const std::lock_guard lock(mutex_);
    std::sort(reads_.begin(), reads_.end(), [](const Read& a, const Read& b) { return a.offset < b.offset; });
    return std::exchange(reads_, {});
  }

 private:
  void note(const Read& read) const {
    const std::lock_guard lock(mutex_);
    reads_.push_back(read);
  }

  mutable std::mutex mutex_;
  mutable std::vector<Read> reads_;
};

std::uint64_t sum(const std::vector<Read>& reads) {
  std::uint64_t bytes = 0;
  for (const Read& read : reads) bytes += read.length;
  return bytes;
}

// Small ones at any offset, large ones on a block, none a multiple of anything; two longer than a piece.
Made mixed() {
  std::vector<TensorSpec> tensors;
  const std::vector<std::int64_t> sizes{5,      70'001, 300,        9'000'001, 4096,
                                        65'536, 1,      20'000'003, 4095,      300'000};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tensors.push_back(
        {(i % 2 == 0 ? "model/t" : "optimizer/t") + std::to_string(i), DType::uint8, {sizes[i]}});
  }
  tensors.push_back({"model/none", DType::float32, {0}});
  return make_snapshot(std::move(tensors), small_attributes());
}

class ReadOnce : public testing::Test {
 protected:
  void write(const Made& made) { test::write(disk, "/a", made); }
  std::unique_ptr<Watched> open() { return std::make_unique<Watched>(disk.open_file("/a", OpenMode::read)); }
  CheckpointIndex index_of(Watched& file) {
    auto index = std::get<CheckpointIndex>(read_index(file));
    file.take();
    return index;
  }
  static void expect_equal(const Snapshot& read, const Made& made) {
    for (const TensorSpec& spec : read.layout->tensors()) {
      EXPECT_TRUE(same_bytes(*read.find(spec.name), *made.snapshot->find(spec.name))) << spec.name;
    }
  }

  MemoryFileSystem disk;
};

TEST_F(ReadOnce, ALargeFileComesFromTheDeviceEachBlockOnce) {
  const Made made = mixed();
  write(made);
  for (const int threads : {1, 3, 9}) {
    const auto file = open();
    const CheckpointIndex index = index_of(*file);
    ASSERT_GE(index.file_length, kReadOnceUncached);
    const auto read = read_snapshot(*file, index, threads);
    ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(read));
    const Snapshot& snapshot = *std::get<std::shared_ptr<Snapshot>>(read);
    EXPECT_EQ(snapshot.layout->tensors().size(), made.plan->layout->tensors().size());
    expect_equal(snapshot, made);
    // Behind the end the device's bytes are not left lying.
    for (const std::byte b : std::as_const(*snapshot.arena).padded().subspan(index.file_length)) {
      EXPECT_EQ(b, std::byte{0});
    }
    std::uint64_t at = index.user_block;
    for (const Read& one : file->take()) {
      EXPECT_TRUE(one.uncached);
      EXPECT_EQ(one.offset, at);
      EXPECT_EQ(one.length % kBlockSize, 0u);
      at += one.length;
    }
    EXPECT_EQ(at, (index.file_length + kBlockSize - 1) / kBlockSize * kBlockSize);
  }
}

TEST_F(ReadOnce, ASmallFileComesThroughTheCache) {
  write(make_snapshot(small_tensors(), small_attributes()));
  const auto file = open();
  const CheckpointIndex index = index_of(*file);
  EXPECT_FALSE(verify_bytes(*file, index));
  EXPECT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(read_snapshot(*file, index)));
  for (const Read& one : file->take()) EXPECT_FALSE(one.uncached);
}

TEST_F(ReadOnce, ATensorIsReadWithItsBlocksAndNoOthers) {
  const Made made = mixed();
  write(made);
  const auto file = open();
  const CheckpointIndex index = index_of(*file);
  for (const IndexedTensor& tensor : index.tensors) {
    const auto read = read_tensors(
        *file, index, [&](const TensorSpec& spec) { return spec.name == tensor.spec.name; }, 2);
    ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(read)) << tensor.spec.name;
    const Snapshot& snapshot = *std::get<std::shared_ptr<Snapshot>>(read);
    ASSERT_EQ(snapshot.layout->tensors().size(), 1u);
    expect_equal(snapshot, made);
    const std::uint64_t end = tensor.offset + tensor.spec.bytes();
    const std::uint64_t blocks =
        tensor.spec.bytes() == 0 ? 0 : (end + kBlockSize - 1) / kBlockSize - tensor.offset / kBlockSize;
    const auto reads = file->take();
    EXPECT_EQ(sum(reads), blocks * kBlockSize) << tensor.spec.name;
    if (blocks != 0) {
      EXPECT_EQ(reads.front().offset, tensor.offset / kBlockSize * kBlockSize);
    }
  }
}

TEST_F(ReadOnce, NeighboursShareTheirBlocksAndTheirReads) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 300; ++i) tensors.push_back({"model/t" + std::to_string(i), DType::uint8, {100 + i}});
  tensors.push_back({"optimizer/large", DType::uint8, {30'000'000}});
  const Made made = make_snapshot(std::move(tensors), small_attributes());
  write(made);
  const auto file = open();
  const CheckpointIndex index = index_of(*file);
  const auto read = read_tensors(*file, index, under("model/"));
  ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(read));
  expect_equal(*std::get<std::shared_ptr<Snapshot>>(read), made);
  const auto reads = file->take();
  EXPECT_LT(reads.size(), 30u);
  std::uint64_t before = 0;
  for (const Read& one : reads) {
    EXPECT_GE(one.offset, before) << "a block was read twice";
    before = one.offset + one.length;
  }
  // HDF5's own bytes lie between the tensors, in the same blocks.
  EXPECT_LT(sum(reads), 300'000u);
}

TEST_F(ReadOnce, AnExportReadsItsTensorsAlone) {
  const Made made = mixed();
  write(made);
  const auto file = open();
  const CheckpointIndex index = index_of(*file);
  std::vector<ExportedTensor> tensors;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const TensorSpec& spec = index.tensors[i].spec;
    if (!spec.name.starts_with("model/")) continue;
    tensors.push_back({spec.name.substr(6), i});
    bytes += spec.bytes();
  }
  const auto to = disk.open_file("/out", OpenMode::create);
  EXPECT_FALSE(export_safetensors(*file, index, tensors, {}, *to, ReadMode::once));
  EXPECT_EQ(sum(file->take()), bytes);
}

// Every piece is hashed, wherever the blocks that are read cut it.
TEST_F(ReadOnce, AFlippedBitIsFoundInEveryTensor) {
  const Made made = mixed();
  write(made);
  const auto& layout = *made.plan->layout;
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const std::uint64_t bytes = layout.tensors()[i].bytes();
    const std::uint64_t apart = bytes > 1'000'000 ? bytes / 3 : bytes;
    for (std::uint64_t at = 0; at < bytes; at += apart) {
      disk.flip_bit("/a", layout.offset(i) + at);
      const auto file = open();
      const CheckpointIndex index = index_of(*file);
      const auto read = read_snapshot(*file, index);
      ASSERT_TRUE(std::holds_alternative<Rejection>(read)) << layout.tensors()[i].name << " at " << at;
      EXPECT_THAT(std::get<Rejection>(read).reason, HasSubstr("tensor " + layout.tensors()[i].name + " "));
      disk.flip_bit("/a", layout.offset(i) + at);
    }
  }
}

}}  // namespace holdfast::test
