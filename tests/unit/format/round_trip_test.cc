#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <random>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/header.h"
#include "support/fault_file_system.h"
#include "support/tensor_digests.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

CheckpointIndex good_index(const File& file) {
  auto index = read_index(file);
  if (const auto* const rejection = std::get_if<Rejection>(&index)) throw Error(rejection->reason);
  return std::get<CheckpointIndex>(std::move(index));
}

std::shared_ptr<Snapshot> good(std::variant<std::shared_ptr<Snapshot>, Rejection> result) {
  if (const auto* const rejection = std::get_if<Rejection>(&result)) throw Error(rejection->reason);
  return std::get<std::shared_ptr<Snapshot>>(result);
}

void expect_same(const Snapshot& a, const Snapshot& b) {
  ASSERT_EQ(a.layout->tensors(), b.layout->tensors());
  for (std::size_t i = 0; i < a.layout->tensors().size(); ++i) {
    EXPECT_TRUE(same_bytes(a.bytes(i), b.bytes(i))) << a.layout->tensors()[i].name;
  }
  EXPECT_EQ(a.step, b.step);
  ASSERT_EQ(a.attributes.size(), b.attributes.size());
  for (const auto& [name, attribute] : a.attributes) {
    ASSERT_TRUE(b.attributes.has(name)) << name;
    EXPECT_TRUE(same_bits(attribute.value, b.attributes.find(name)->value)) << name;
    EXPECT_EQ(attribute.role, b.attributes.find(name)->role) << name;
  }
  EXPECT_EQ(state_digest(a), state_digest(b));
}

void expect_round_trip(const Made& made, int threads) {
  MemoryFileSystem disk;
  const auto digests = write(disk, "/a", made, threads);
  EXPECT_EQ(digests, tensor_digests(*made.snapshot));
  const auto file = disk.open_file("/a", OpenMode::read);
  const CheckpointIndex index = good_index(*file);
  EXPECT_EQ(index.file_length, made.plan->layout->length());
  EXPECT_EQ(index.user_block, made.plan->user_block);
  EXPECT_EQ(index.attribute_capacity, made.plan->attribute_capacity);
  EXPECT_EQ(index.format_version, 1u);
  for (const ReadMode mode : {ReadMode::cached, ReadMode::uncached}) {
    const auto damage = verify_bytes(*file, index, mode, threads);
    EXPECT_FALSE(damage) << damage->reason;
    const auto read = good(read_snapshot(*file, index, threads, mode));
    expect_same(*made.snapshot, *read);
    // Beyond the user block the image is the file.
    const auto image = std::span<const std::byte>(made.snapshot->arena->bytes()).subspan(index.user_block);
    EXPECT_TRUE(
        same_bytes(image, std::span<const std::byte>(read->arena->bytes()).subspan(index.user_block)));
  }
}

TEST(RoundTrip, EveryTypeAndOddShapes) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i <= 16; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string group = "model/" + std::string(name_of(dtype));
    tensors.push_back({group + "/scalar", dtype, {}});
    tensors.push_back({group + "/empty", dtype, {3, 0}});
    tensors.push_back({group + "/odd", dtype, {1, 7, 1, 3}});
    tensors.push_back({group + "/large", dtype, {257, 301}});
  }
  expect_round_trip(make_snapshot(std::move(tensors), small_attributes()), 2);
}

TEST(RoundTrip, NothingAtAll) { expect_round_trip(make_snapshot({}, {}, 0), 1); }

TEST(RoundTrip, TensorsOfSeveralPieces) {
  expect_round_trip(make_snapshot({{"a/just", DType::uint8, {8 << 20}},
                                   {"a/more", DType::uint8, {(8 << 20) + 1}},
                                   {"a/small", DType::uint8, {3}},
                                   {"a/two", DType::float32, {(16 << 20) / 4 + 5}}},
                                  small_attributes()),
                    3);
}

TEST(RoundTrip, AttributesKeepEveryBit) {
  const double nan = std::bit_cast<double>(0x7ff8dead0000beefull);
  const double infinity = std::numeric_limits<double>::infinity();
  Attributes attributes;
  attributes.set("yes", true);
  attributes.set("no", false, Role::record);
  attributes.set("least", std::numeric_limits<std::int64_t>::min());
  attributes.set("most", std::numeric_limits<std::int64_t>::max());
  attributes.set("nan", nan);
  attributes.set("minus zero", -0.0);
  attributes.set("doubles", std::vector<double>{nan, -nan, infinity, -infinity, 5e-324, 0.1});
  attributes.set("no doubles", std::vector<double>{});
  attributes.set("ints", std::vector<std::int64_t>{0, -1, std::numeric_limits<std::int64_t>::min()});
  attributes.set("no ints", std::vector<std::int64_t>{});
  attributes.set("texts", std::vector<std::string>{"", "\"\\/\b\n\x01\x7f", "😀"}, Role::record);
  attributes.set("no texts", std::vector<std::string>{});
  attributes.set("text", std::string("a\0b", 3));
  attributes.set("float", std::string("{\"float\":1}"));
  expect_round_trip(make_snapshot(small_tensors(), attributes), 1);
}

TEST(RoundTrip, RandomListsOfTensorsComeBack) {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t limit) { return static_cast<std::int64_t>(random() % limit); };
  for (int round = 0; round < 12; ++round) {
    std::vector<TensorSpec> tensors;
    for (std::int64_t i = 0, count = below(40); i < count; ++i) {
      TensorSpec spec{
          "g" + std::to_string(below(3)) + "/t" + std::to_string(i), static_cast<DType>(below(17)), {}};
      for (std::int64_t d = 0, rank = below(5); d < rank; ++d) spec.shape.push_back(below(13));
      if (below(10) == 0) spec.shape = {below(100000)};
      tensors.push_back(std::move(spec));
    }
    expect_round_trip(
        make_snapshot(std::move(tensors), small_attributes(), below(1u << 30), 1024u << below(6)),
        1 + static_cast<int>(below(3)));
  }
}

TEST(RoundTrip, AnImageIsReusedForTheNextStep) {
  Made made = make_snapshot(small_tensors(), small_attributes());
  expect_round_trip(made, 1);
  made.snapshot->step = 43;
  made.snapshot->attributes = Attributes();  // shorter: nothing of the old index may stay
  fill(made.plan->layout->slot(0, made.snapshot->arena->bytes()), "other");
  expect_round_trip(made, 1);

  const auto meta = std::span<const std::byte>(made.snapshot->arena->bytes())
                        .subspan(made.plan->json_offset, made.plan->attribute_capacity);
  const std::string text(reinterpret_cast<const char*>(meta.data()), meta.size());
  EXPECT_EQ(text.substr(0, 2), "{}");
  EXPECT_EQ(text.find_first_not_of('\0', 2), std::string::npos) << "the old /meta/json shows through";
}

// It is recognized by the digest of the bytes that were read, so nothing is believed for its name's sake.
TEST(ReadIndex, AKnownOneIsTakenOnlyForTheSameBytes) {
  Made made = make_snapshot(small_tensors(), small_attributes());
  MemoryFileSystem disk;
  write(disk, "/a", made);
  fill(made.plan->layout->slot(0, made.snapshot->arena->bytes()), "other");
  write(disk, "/b", made);
  CheckpointIndex known = good_index(*disk.open_file("/a", OpenMode::read));
  known.step = 7;  // shows which one it was
  const auto step = [&](const char* path) {
    const auto read = read_index(*disk.open_file(path, OpenMode::read), ReadMode::cached, &known);
    return std::holds_alternative<Rejection>(read) ? -1 : std::get<CheckpointIndex>(read).step;
  };
  EXPECT_EQ(step("/a"), 7);
  EXPECT_EQ(step("/b"), 42);
  // A header that counts a byte of the padding as text is refused, whatever is known.
  const auto file = disk.open_file("/a", OpenMode::overwrite_direct);
  alignas(kBlockSize) std::array<std::byte, kHeaderSize> bytes;
  ASSERT_EQ(file->read_at(bytes, 0), kHeaderSize);
  auto header = std::get<internal::Header>(internal::read_header(bytes, file->size()));
  ++header.index_length;
  internal::write_header(bytes, header);
  file->write_at(bytes, 0);
  EXPECT_EQ(step("/a"), -1);
  --header.index_length;
  internal::write_header(bytes, header);
  file->write_at(bytes, 0);
  EXPECT_EQ(step("/a"), 7);
  disk.flip_bit("/a", kIndexOffset + 10);
  EXPECT_EQ(step("/a"), -1);
}

TEST(ReadTensors, ReadsOnlyTheWanted) {
  const Made made = make_snapshot({{"model/a", DType::float32, {5}},
                                   {"optimizer/a", DType::float32, {100000}},
                                   {"model/large", DType::float32, {3 << 20}},
                                   {"model/none", DType::float32, {0}},
                                   {"modelling/a", DType::float32, {5}}},
                                  small_attributes());
  MemoryFileSystem disk;
  write(disk, "/a", made);
  FaultFileSystem watched(disk);
  const auto file = watched.open_file("/a", OpenMode::read);
  const CheckpointIndex index = good_index(*file);
  watched.clear_log();
  const auto part = good(read_tensors(*file, index, under("model/")));
  std::uint64_t bytes = 0;
  for (const Operation& operation : watched.log()) bytes += operation.kind == Op::read ? operation.length : 0;
  EXPECT_EQ(bytes, 4096u + (12u << 20));
  ASSERT_EQ(part->layout->tensors().size(), 3u);
  for (const TensorSpec& spec : part->layout->tensors()) {
    EXPECT_TRUE(same_bytes(*part->find(spec.name), *made.snapshot->find(spec.name))) << spec.name;
  }
  EXPECT_FALSE(part->find("modelling/a"));
  EXPECT_EQ(part->step, 42);
  EXPECT_TRUE(good(read_tensors(*file, index, under("nothing")))->layout->tensors().empty());
}

}}  // namespace holdfast::test
