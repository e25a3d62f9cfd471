#include "holdfast/data/cifar10.h"

#include <filesystem>
#include <span>

#include "holdfast/data/internal/record_file.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// As Toronto's binary version has them: five files to train on and one to test with.
constexpr int kBatches = 5;
// A record is one byte of label and three planes of 32 x 32 bytes.
constexpr internal::RecordFormat kFormat{
    .what = "CIFAR-10",
    .remedy = "unpack the binary version, cifar-10-binary.tar.gz, again",
    .records = 10'000,
    .record_bytes = 3073,
    .classes = 10,
};

void read_batch(const std::string& path, PictureSet& set, std::int64_t first) {
  constexpr auto kBytes = static_cast<std::size_t>(kFormat.records * kFormat.record_bytes);
  internal::read_record_file(path, kFormat, {set.record(first), kBytes});
}

}  // namespace

PictureSplits read_cifar10(const std::string& folder) {
  std::error_code ignored;
  std::string base = folder;
  // Users name either the folder or the one that the archive unpacks into it.
  const std::string below = folder + "/cifar-10-batches-bin";
  if (!std::filesystem::exists(folder + "/data_batch_1.bin", ignored) &&
      std::filesystem::is_directory(below, ignored)) {
    base = below;
  }
  PictureSplits splits{PictureSet("cifar10-train", kBatches * kFormat.records, {}, kFormat.classes),
                       PictureSet("cifar10-test", kFormat.records, {}, kFormat.classes)};
  for (int batch = 0; batch < kBatches; ++batch) {
    read_batch(base + "/data_batch_" + std::to_string(batch + 1) + ".bin", splits.train,
               batch * kFormat.records);
  }
  read_batch(base + "/test_batch.bin", splits.test, 0);
  return splits;
}

}}  // namespace holdfast::v0_2
