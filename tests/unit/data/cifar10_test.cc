#include "holdfast/data/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "holdfast/base/error.h"

namespace {

namespace fs = std::filesystem;
using holdfast::read_cifar10;
using holdfast::RefusedError;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kRecord = 3073;
constexpr std::size_t kFile = 10'000 * kRecord;

// A folder with the six files; batch b's record i has label (b + i) % 10 and pixels of (b + 2 i) % 256.
class Cifar10 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root = fs::temp_directory_path() / ("holdfast_cifar10_" + std::to_string(::getpid()));
    folder = root / "cifar-10-batches-bin";
    fs::create_directories(folder);
    for (int batch = 1; batch <= 6; ++batch) write(path(batch), good(batch));
  }
  static void TearDownTestSuite() { fs::remove_all(root); }

  static fs::path path(int batch) {
    return folder / (batch == 6 ? "test_batch.bin" : "data_batch_" + std::to_string(batch) + ".bin");
  }
  static std::string good(int batch) {
    std::string bytes(kFile, '\0');
    for (std::size_t i = 0; i < 10'000; ++i) {
      const std::size_t b = static_cast<std::size_t>(batch);
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * kRecord), kRecord,
                  static_cast<char>((b + 2 * i) % 256));
      bytes[i * kRecord] = static_cast<char>((b + i) % 10);
    }
    return bytes;
  }
  static void write(const fs::path& to, const std::string& bytes) {
    std::ofstream(to, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  static std::string message() {
    try {
      read_cifar10(folder);
    } catch (const RefusedError& error) {
      return error.what();
    }
    return "no error";
  }

  static inline fs::path root;
  static inline fs::path folder;
};

TEST_F(Cifar10, ReadsAllSixFilesInOrder) {
  const auto splits = read_cifar10(folder);
  EXPECT_EQ(splits.train.size(), 50'000);
  EXPECT_EQ(splits.test.size(), 10'000);
  EXPECT_EQ(splits.train.classes(), 10);
  for (std::int64_t i = 0; i < 50'000; ++i) {
    const std::int64_t batch = i / 10'000 + 1;
    ASSERT_EQ(splits.train.label(i), (batch + i % 10'000) % 10);
    ASSERT_EQ(splits.train.pixels(i)[3071], (batch + 2 * (i % 10'000)) % 256);
  }
  EXPECT_EQ(splits.test.label(5), (6 + 5) % 10);
}

TEST_F(Cifar10, FindsTheFilesInTheParentFolder) { EXPECT_EQ(read_cifar10(root).train.size(), 50'000); }

TEST_F(Cifar10, NamesAMissingBatch) {
  fs::rename(path(3), path(3).string() + ".away");
  EXPECT_THAT(message(), AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("missing"), HasSubstr("unpack")));
  fs::rename(path(3).string() + ".away", path(3));
  EXPECT_THROW(read_cifar10(root / "nowhere"), RefusedError);
}

TEST_F(Cifar10, NamesAFileOfAnotherSize) {
  fs::resize_file(path(2), kFile - 5);
  EXPECT_THAT(message(),
              AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("ends at byte " + std::to_string(kFile - 5))));
  fs::resize_file(path(2), kFile + 1);
  EXPECT_THAT(message(),
              AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("should end at byte " + std::to_string(kFile))));
  write(path(2), good(2));
}

TEST_F(Cifar10, NamesABadLabelAndItsOffset) {
  std::string bytes = good(6);
  bytes[1234 * kRecord] = 10;
  write(path(6), bytes);
  EXPECT_THAT(message(), AllOf(HasSubstr("test_batch.bin"), HasSubstr("label 10"),
                               HasSubstr("byte " + std::to_string(1234 * kRecord))));
  write(path(6), good(6));
}

TEST_F(Cifar10, SaysWhichFileCannotBeRead) {
  fs::rename(path(1), path(1).string() + ".away");
  fs::create_directory(path(1));
  EXPECT_THROW(read_cifar10(folder), holdfast::Error);
  fs::remove(path(1));
  fs::rename(path(1).string() + ".away", path(1));
}

}  // namespace
