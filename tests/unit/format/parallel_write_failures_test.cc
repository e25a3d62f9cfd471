// For the thread sanitizer: images written by several threads while writes of theirs fail, directly and
// through the page cache.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "holdfast/base/error.h"
#include "holdfast/io/posix_file_system.h"
#include "support/fault_file_system.h"
#include "support/tensor_digests.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

class Raced : public testing::TestWithParam<bool> {
 public:
  Raced() {
    std::string name = testing::TempDir() + "/holdfast-raced-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  ~Raced() override { std::filesystem::remove_all(folder); }

  // Blocks of 256 KiB, so that every thread writes many.
  std::vector<Digest> write(FileSystem& over, const std::string& name) {
    const auto file = over.open_file(folder / name, OpenMode::create_direct);
    file->reserve(made.plan->layout->length());
    const auto digests = write_image(*file, *made.snapshot, *made.plan,
                                     {.threads = 4,
                                      .before_seal = [](Snapshot&, std::optional<std::size_t>) {},
                                      .write_limit = 1,
                                      .limit_lifted = &limit_lifted});
    file->sync();
    file->close();
    return digests;
  }
  bool is_good(const std::string& name) {
    const auto file = files.open_file(folder / name, OpenMode::read);
    const auto index = read_index(*file, ReadMode::cached);
    const auto* const read = std::get_if<CheckpointIndex>(&index);
    return read != nullptr && !verify_bytes(*file, *read, ReadMode::uncached);
  }

  std::filesystem::path folder;
  PosixFileSystem files{{.direct = GetParam()}};
  const Made made = make_snapshot(
      {{"model/a", DType::float32, {6 << 20}}, {"model/b", DType::bfloat16, {9 << 20}}}, small_attributes());
  std::atomic<bool> limit_lifted{false};
};

TEST_P(Raced, ThreadsWriteBlocksOfOneFile) {
  limit_lifted = true;
  EXPECT_EQ(write(files, "a"), tensor_digests(*made.snapshot));
  EXPECT_TRUE(is_good("a"));
}

TEST_P(Raced, AFailureOfOneEndsAllAndTheNextImageIsWhole) {
  limit_lifted = true;
  for (int nth = 2; nth <= 7; ++nth) {
    FaultFileSystem faults(files);
    const std::string name = "a" + std::to_string(nth);
    faults.fail(Op::write, nth, nth % 2 == 0 ? EIO : ENOSPC, {.short_write = nth % 3 == 0});
    try {
      write(faults, name);
      EXPECT_EQ(faults.faults_fired(), 0);
    } catch (const IoError& error) {
      EXPECT_TRUE(error.code() == EIO || error.code() == ENOSPC);
      EXPECT_FALSE(is_good(name)) << nth;
    }
    EXPECT_EQ(faults.faults_fired(), 1);
    std::filesystem::remove(folder / name);
  }
  write(files, "b");
  EXPECT_TRUE(is_good("b"));
}

// Several threads fail at once; one of the errors is told.
TEST_P(Raced, AllThreadsMayFail) {
  limit_lifted = true;
  FaultFileSystem faults(files);
  faults.fail(Op::write, 1, EIO, {.for_ever = true});
  EXPECT_THROW(write(faults, "a"), IoError);
  EXPECT_GE(faults.faults_fired(), 1);
  EXPECT_FALSE(is_good("a"));
}

// A limit is lifted while threads wait for their turns.
TEST_P(Raced, ALimitThatIsLiftedEndsTheWaitOfAllThreads) {
  std::thread lifting([&] {
    while (std::filesystem::is_empty(folder)) std::this_thread::yield();
    limit_lifted = true;
  });
  write(files, "a");
  lifting.join();
  EXPECT_TRUE(is_good("a"));
}

INSTANTIATE_TEST_SUITE_P(Kernel, Raced, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Direct") : std::string("Buffered");
});

}}  // namespace holdfast::test
