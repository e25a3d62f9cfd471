// Checkpoints of format 1 that were written once and are never written again: every later reader must read
// them, and today's writer must seal the same as the newest.
//
// Was the format changed on purpose? Then it is another version, with a golden file of its own.
#include "format_v1.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <filesystem>

#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

constexpr char kState[] = "79d282b536feb8665defd9257b2f7bb2";

// 1.10.8 wrote it; other versions may lay HDF5's own bytes out in another way.
bool same_libhdf5() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return major == 1 && minor == 10;
}

class FormatV1 : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, FormatV1, testing::Values(kGolden, kGoldenWithAttrs));

TEST_P(FormatV1, ReadsAsItWasWritten) {
  const auto file = FileSystem::real().open_file(GetParam(), OpenMode::read);
  ASSERT_NE(file, nullptr);
  EXPECT_LT(file->size(), 100u << 10);
  const auto read = read_index(*file);
  ASSERT_TRUE(std::holds_alternative<CheckpointIndex>(read)) << std::get<Rejection>(read).reason;
  const auto& index = std::get<CheckpointIndex>(read);
  EXPECT_EQ(index.format_version, 1u);
  EXPECT_EQ(index.step, 1234567890123);
  EXPECT_EQ(index.attribute_capacity, 2048u);
  EXPECT_FALSE(verify_bytes(*file, index));
  const auto loaded = read_snapshot(*file, index);
  ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(loaded));
  const Snapshot& snapshot = *std::get<std::shared_ptr<Snapshot>>(loaded);

  const auto expected = golden_snapshot(*golden_plan());
  ASSERT_EQ(snapshot.layout->tensors(), tensors());
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    const auto got = snapshot.bytes(i);
    const auto want = expected->bytes(i);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end())) << tensors()[i].name;
  }
  const Attributes all = attributes();
  ASSERT_EQ(snapshot.attributes.size(), all.size());
  for (const auto& [name, attribute] : all) {
    ASSERT_TRUE(snapshot.attributes.has(name)) << name;
    EXPECT_TRUE(same_bits(snapshot.attributes.find(name)->value, attribute.value)) << name;
    EXPECT_EQ(snapshot.attributes.find(name)->role, attribute.role) << name;
  }
  EXPECT_EQ(to_hex(state_digest(snapshot)), kState);
}

TEST(FormatV1Writer, SealsTheSame) {
  const auto plan = golden_plan();
  const auto snapshot = golden_snapshot(*plan);
  MemoryFileSystem disk;
  const auto out = disk.open_file("/new", OpenMode::create_direct);
  write_image(*out, *snapshot, *plan);
  out->close();
  const std::vector<std::byte> written = disk.get("/new");

  const auto file = FileSystem::real().open_file(kGoldenWithAttrs, OpenMode::read);
  std::vector<std::byte> golden(file->size());
  ASSERT_EQ(file->read_at(golden, 0), golden.size());
  // All that we seal ourselves, whatever libhdf5 laid out around it.
  const auto today = disk.open_file("/new", OpenMode::read);
  const auto a = std::get<CheckpointIndex>(read_index(*file));
  const auto b = std::get<CheckpointIndex>(read_index(*today));
  EXPECT_EQ(a.format_version, b.format_version);
  EXPECT_EQ(a.user_block, b.user_block);
  EXPECT_EQ(a.attribute_capacity, b.attribute_capacity);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(internal::attributes_json(a.attributes), internal::attributes_json(b.attributes));
  EXPECT_EQ(internal::meta_json(a.attributes), internal::meta_json(b.attributes));
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].spec, b.tensors[i].spec);
    EXPECT_EQ(a.tensors[i].digest, b.tensors[i].digest);
  }
  // The header's first 64 bytes but its digest, which covers the file's length.
  EXPECT_TRUE(std::equal(golden.begin(), golden.begin() + kHeaderDigestAt, written.begin()));
  if (same_libhdf5()) {
    EXPECT_TRUE(written == golden) << "the same libhdf5, other bytes";
  }
}

TEST(GoldenFiles, ThereIsOneOfEachFormatVersion) {
  for (std::uint32_t version = 1; version <= kFormatVersion; ++version) {
    const std::string path = HOLDFAST_SOURCE_DIR "/tests/golden/format_v" + std::to_string(version) + ".h5";
    ASSERT_TRUE(std::filesystem::exists(path)) << path << ": every format needs its golden file and test";
    const auto file = FileSystem::real().open_file(path, OpenMode::read);
    EXPECT_LT(file->size(), 100U << 10) << path;
    const auto read = read_index(*file);
    ASSERT_TRUE(std::holds_alternative<CheckpointIndex>(read))
        << path << ": " << std::get<Rejection>(read).reason;
    EXPECT_EQ(std::get<CheckpointIndex>(read).format_version, version) << path;
    EXPECT_FALSE(verify_bytes(*file, std::get<CheckpointIndex>(read))) << path;
  }
}

}}  // namespace holdfast::test
