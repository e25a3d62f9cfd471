// Weights leave a checkpoint as a safetensors file only if every byte is what it was.
#include "holdfast/format/safetensors_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_maker.h"
#include "holdfast/base/error.h"
#include "holdfast/format/safetensors.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

const std::vector<ExportedTensor> kModel = {{"conv.weight", 0}, {"scale", 1}, {"empty", 2}, {"tied", 0}};

CheckpointIndex index_of(const File& file) { return std::get<CheckpointIndex>(read_index(file)); }

TEST(SafetensorsExport, HasTheTensorsUnderTheirKeys) {
  MemoryFileSystem disk;
  const Made made = make_snapshot(small_tensors(), small_attributes());
  write(disk, "/a", made);
  const auto from = disk.open_file("/a", OpenMode::read);
  const auto to = disk.open_file("/b", OpenMode::create);
  EXPECT_FALSE(export_safetensors(*from, index_of(*from), kModel, {{"format", "pt"}}, *to));

  const auto index = std::get<SafetensorsIndex>(read_safetensors_index(*to));
  EXPECT_EQ(index.metadata.at("format"), "pt");
  const auto back = std::get<std::shared_ptr<Snapshot>>(read_safetensors(*to, index));
  ASSERT_EQ(back->layout->tensors().size(), 4u);
  for (const auto& [key, tensor] : kModel) {
    const auto found = back->layout->find("model/" + key);
    ASSERT_TRUE(found) << key;
    EXPECT_EQ(back->layout->tensors()[*found].shape, made.plan->layout->tensors()[tensor].shape);
    EXPECT_EQ(back->layout->tensors()[*found].dtype, made.plan->layout->tensors()[tensor].dtype);
    EXPECT_TRUE(same_bytes(back->bytes(*found), made.snapshot->bytes(tensor))) << key;
  }
}

TEST(SafetensorsExport, PiecesOfALargeTensorAreInTheirOrder) {
  MemoryFileSystem disk;
  const Made made = make_snapshot(
      {{"model/a", DType::uint8, {(16 << 20) + 77}}, {"model/b", DType::int64, {9}}}, small_attributes());
  write(disk, "/a", made);
  const auto from = disk.open_file("/a", OpenMode::read);
  const auto to = disk.open_file("/b", OpenMode::create);
  EXPECT_FALSE(export_safetensors(*from, index_of(*from), {{"a", 0}, {"b", 1}}, {}, *to, ReadMode::uncached));
  const auto index = std::get<SafetensorsIndex>(read_safetensors_index(*to));
  const auto back = std::get<std::shared_ptr<Snapshot>>(read_safetensors(*to, index));
  EXPECT_TRUE(same_bytes(back->find("model/a").value(), made.snapshot->bytes(0)));
  EXPECT_TRUE(same_bytes(back->find("model/b").value(), made.snapshot->bytes(1)));
}

TEST(SafetensorsExport, AFlippedBitIsNotPassedOn) {
  MemoryFileSystem disk;
  const Made made = make_snapshot(small_tensors(), small_attributes());
  write(disk, "/a", made);
  const auto from = disk.open_file("/a", OpenMode::read);
  const CheckpointIndex index = index_of(*from);
  disk.flip_bit("/a", index.tensors[1].offset + 3);
  const auto to = disk.open_file("/b", OpenMode::create);
  const auto rejection = export_safetensors(*from, index, kModel, {}, *to);
  ASSERT_TRUE(rejection);
  EXPECT_THAT(rejection->reason, HasSubstr("tensor model/scale"));
  EXPECT_THAT(rejection->reason, HasSubstr("digest differs"));
  // What is not exported is not read.
  const auto other = disk.open_file("/c", OpenMode::create);
  EXPECT_FALSE(export_safetensors(*from, index, {{"conv.weight", 0}}, {}, *other));
}

TEST(SafetensorsExport, AFileThatBecameShorterIsDamage) {
  MemoryFileSystem disk;
  write(disk, "/a", make_snapshot(small_tensors(), small_attributes()));
  const CheckpointIndex index = index_of(*disk.open_file("/a", OpenMode::read));
  auto bytes = disk.get("/a");
  bytes.resize(index.tensors[0].offset + 5);
  disk.put("/a", bytes);
  const auto to = disk.open_file("/b", OpenMode::create);
  const auto rejection =
      export_safetensors(*disk.open_file("/a", OpenMode::read), index, {{"conv.weight", 0}}, {}, *to);
  ASSERT_TRUE(rejection);
  EXPECT_THAT(rejection->reason, HasSubstr("became shorter"));
}

TEST(SafetensorsExport, AFullDiskShowsBeforeTheFirstByte) {
  MemoryFileSystem disk;
  FaultFileSystem faults(disk);
  write(disk, "/a", make_snapshot(small_tensors(), small_attributes()));
  const auto from = disk.open_file("/a", OpenMode::read);
  const auto to = faults.open_file("/b", OpenMode::create);
  faults.fail(Op::reserve, 1, ENOSPC);
  EXPECT_THROW(static_cast<void>(export_safetensors(*from, index_of(*from), kModel, {}, *to)), IoError);
  EXPECT_EQ(faults.count(Op::write), 0);
}

}}  // namespace holdfast::test
