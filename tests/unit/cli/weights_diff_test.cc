// `holdfast diff` of weights: what it reads.
#include "holdfast/cli/weights/weights_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "holdfast/base/exit_code.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/zip/zip_writer.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

constexpr int kTensors = 16;
constexpr int kElements = 1 << 16;  // of each

std::string text(const std::string& word) {
  return std::string("X") + static_cast<char>(word.size()) + std::string(3, '\0') + word;
}
std::string integer(std::int32_t value) {
  std::string bytes(4, '\0');
  internal::put_little_endian(std::as_writable_bytes(std::span(bytes)), 0, static_cast<std::uint32_t>(value));
  return "J" + bytes;
}

// A state dict whose tensors are parts of one storage, as the views of a flat parameter are.
void save_flat(const std::filesystem::path& path, char last) {
  std::string pickle = "\x80\x02}(";
  for (int i = 0; i < kTensors; ++i) {
    pickle += text("w" + std::to_string(i)) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
              "ctorch\nFloatStorage\n" + text("0") + text("cpu") + integer(kTensors * kElements) + "tQ" +
              integer(i * kElements) + integer(kElements) + "\x85" + integer(1) + "\x85\x89" +
              "ccollections\nOrderedDict\n)RtR";
  }
  pickle += "u.";
  std::string data(std::size_t{4} * kTensors * kElements, '\x3f');
  data.back() = last;
  const auto file = FileSystem::real().open_file(path, OpenMode::create);
  internal::ZipWriter zip(*file, {{"a/data.pkl", pickle.size()}, {"a/data/0", data.size()}});
  zip.write(std::as_bytes(std::span(pickle)));
  zip.write(std::as_bytes(std::span(data)));
  zip.finish();
}

// Bytes that this process has read with system calls.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  file >> name >> value;  // "rchar: 1234"
  return value;
}

TEST(WeightsDiff, ReadsAStorageOfManyTensorsOnce) {
  const TemporaryFolder folder;
  const auto a = folder.path() / "a.pt";
  const auto b = folder.path() / "b.pt";
  save_flat(a, '\x3f');
  save_flat(b, '\x40');
  const std::uint64_t before = bytes_read();
  testing::internal::CaptureStdout();
  const int code = diff_weights({.a = a, .b = b, .all = true});
  const std::string out = testing::internal::GetCapturedStdout();
  const std::uint64_t read = bytes_read() - before;
  EXPECT_EQ(code, static_cast<int>(ExitCode::difference));
  EXPECT_THAT(out, testing::HasSubstr("weights: 1 of 16 differ in value\n"));
  EXPECT_THAT(out, testing::HasSubstr("w15"));
  if (before == 0) GTEST_SKIP() << "the system does not count reads here";
  EXPECT_LT(read, 2.5 * 4 * kTensors * kElements) << "each of the two storages once";
}

}}  // namespace holdfast::test
