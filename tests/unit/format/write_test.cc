#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/format/seal.h"
#include "support/fault_file_system.h"
#include "support/tensor_digests.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

Made large() {
  return make_snapshot({{"model/a", DType::float32, {5 << 20}}, {"model/b", DType::float32, {5 << 20}}},
                       small_attributes());
}

TEST(WriteImage, WritesTheHeadLast) {
  MemoryFileSystem disk;
  FaultFileSystem watched(disk);
  const Made made = large();
  write(watched, "/a", made, 3);
  std::uint64_t covered = 0;
  bool head = false;
  for (const Operation& operation : watched.log()) {
    if (operation.kind != Op::write) continue;
    EXPECT_EQ(operation.offset % 4096, 0u);
    EXPECT_EQ(operation.length % 4096, 0u);
    if (operation.offset < made.plan->head) {
      EXPECT_LE(operation.offset + operation.length, made.plan->head);
      EXPECT_EQ(covered, made.snapshot->arena->capacity() - made.plan->head)
          << "bytes written before the head";
      head = true;
    } else {
      EXPECT_FALSE(head);
      covered += operation.length;
    }
  }
  EXPECT_TRUE(head);
  EXPECT_EQ(judge(disk.get("/a")), "good");
}

TEST(WriteImage, AFailureAnywhereLeavesNoValidFile) {
  const Made made = large();
  int writes = 0;
  for (int nth = 1;; ++nth) {
    MemoryFileSystem disk;
    FaultFileSystem faults(disk);
    const auto file = faults.open_file("/a", OpenMode::create_direct);
    faults.fail_mutation(nth, ENOSPC, {.short_write = true});
    try {
      write_image(*file, *made.snapshot, *made.plan, 2);
      EXPECT_EQ(faults.faults_fired(), 0);
      writes = nth - 1;
      break;
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOSPC);
      EXPECT_NE(judge(disk.get("/a")), "good") << "operation " << nth;
    }
  }
  EXPECT_GE(writes, 6);  // 42 MB in blocks of 8 MiB, and the head
}

Made of_ones() {
  Made made = large();
  for (std::size_t i = 0; i < made.plan->layout->tensors().size(); ++i) {
    const auto bytes = made.plan->layout->slot(i, made.snapshot->arena->bytes());
    std::fill(bytes.begin(), bytes.end(), std::byte{1});
  }
  return made;
}

TEST(WriteImage, TellsBeforeTheSealWhetherAllNumbersAreFinite) {
  for (const bool finite : {true, false}) {
    const Made made = of_ones();
    // The last number of the second tensor's last piece.
    const float infinity = std::numeric_limits<float>::infinity();
    const auto bytes = made.plan->layout->slot(1, made.snapshot->arena->bytes());
    if (!finite) std::memcpy(bytes.data() + bytes.size() - sizeof infinity, &infinity, sizeof infinity);
    MemoryFileSystem disk;
    const auto file = disk.open_file("/a", OpenMode::create_direct);
    int told = 0;
    const auto digests =
        write_image(*file, *made.snapshot, *made.plan,
                    {.threads = 2, .before_seal = [&](Snapshot& snapshot, std::optional<std::size_t> found) {
                       ++told;
                       EXPECT_EQ(found, finite ? std::nullopt : std::optional<std::size_t>(1));
                       snapshot.attributes.set("found", !found, Role::record);
                     }});
    EXPECT_EQ(told, 1);
    EXPECT_EQ(digests, tensor_digests(*made.snapshot));
    EXPECT_EQ(judge(disk.get("/a")), "good");
    const auto read = read_index(*disk.open_file("/a", OpenMode::read), ReadMode::cached);
    EXPECT_EQ(std::get<CheckpointIndex>(read).attributes.get_bool("found"), finite);
  }
}

TEST(WriteImage, WhatIsThrownBeforeTheSealLeavesNoValidFile) {
  const Made made = large();
  MemoryFileSystem disk;
  const auto file = disk.open_file("/a", OpenMode::create_direct);
  EXPECT_THROW(
      write_image(*file, *made.snapshot, *made.plan,
                  {.before_seal = [](Snapshot&, std::optional<std::size_t>) { throw RefusedError("no"); }}),
      RefusedError);
  EXPECT_NE(judge(disk.get("/a")), "good");
}

TEST(Seal, TakesOnlyItsOwnPlansSnapshots) {
  Made made = make_snapshot(small_tensors(), small_attributes());
  const auto digests = tensor_digests(*made.snapshot);
  const auto other = make_file_plan(small_tensors(), kSmallCapacity);
  EXPECT_THROW(seal(*made.snapshot, *other, digests), Error);
  EXPECT_THROW(seal(*made.snapshot, *made.plan, std::span(digests).first(1)), Error);
  made.snapshot->step = -1;
  EXPECT_THROW(seal(*made.snapshot, *made.plan, digests), Error);
}

TEST(Seal, StrayWritesIntoTheImageShowAsDamage) {
  const Made made = make_snapshot(small_tensors(), small_attributes());
  made.snapshot->arena->bytes()[made.plan->user_block + 3] ^= std::byte{1};
  MemoryFileSystem disk;
  write(disk, "/a", made);
  EXPECT_THAT(judge(disk.get("/a")), testing::HasSubstr("HDF5 metadata"));
}

TEST(WriteImage, FindsTheSameDigestsWithAnyNumberOfThreads) {
  const Made made = large();
  MemoryFileSystem disk;
  EXPECT_EQ(write(disk, "/a", made, 1), tensor_digests(*made.snapshot));
  EXPECT_EQ(write(disk, "/b", made, 4), tensor_digests(*made.snapshot));
}

}}  // namespace holdfast::test
