#include "holdfast/io/line_file.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast { namespace {

using test::FaultFileSystem;
using test::MemoryFileSystem;
using test::Op;

TEST(LineFile, EachLineIsOneWrite) {
  MemoryFileSystem disk;
  FaultFileSystem fs(disk);
  LineFile file(fs, "/m");
  file.append("one");
  file.append("");
  file.append("three");
  EXPECT_EQ(disk.get_text("/m"), "one\n\nthree\n");
  EXPECT_EQ(fs.count(Op::write), 3);
}

TEST(LineFile, ClosesATornLineFirst) {
  MemoryFileSystem disk;
  disk.put("/m", "one\n{\"step\": 2");
  LineFile(disk, "/m").append("two");
  EXPECT_EQ(disk.get_text("/m"), "one\n{\"step\": 2\ntwo\n");
  LineFile(disk, "/m").append("three");
  EXPECT_EQ(disk.get_text("/m"), "one\n{\"step\": 2\ntwo\nthree\n");
}

TEST(LineFile, AfterAFailedWriteTheNextLineStandsAlone) {
  MemoryFileSystem disk;
  FaultFileSystem fs(disk);
  LineFile file(fs, "/m");
  file.append("one");
  fs.fail(Op::write, 1, ENOSPC, {.short_write = true});
  EXPECT_THROW(file.append("second"), IoError);
  file.append("three");
  EXPECT_EQ(disk.get_text("/m"), "one\nsec\nthree\n");
}

}}  // namespace holdfast
