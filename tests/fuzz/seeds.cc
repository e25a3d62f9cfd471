// fuzz_seeds FOLDER: writes the seeds that are files of several KiB, as today's writer makes them, into
// FOLDER/<target>. The small ones are checked in, in corpus/.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bytes_file.h"
#include "holdfast/format/internal/zip/zip_reader.h"
#include "holdfast/format/layout.h"
#include "holdfast/staging/run_record.h"
#include "sealed_file.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

void put(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.native());
}

std::vector<std::byte> checkpoint(std::vector<TensorSpec> tensors, const Attributes& attributes) {
  MemoryFileSystem disk;
  write(disk, "/a", make_snapshot(std::move(tensors), attributes, 42, kMinAttributeCapacity), 1);
  return disk.get("/a");
}

Attributes of_a_run() {
  Attributes attributes = small_attributes();
  put_run_record(attributes, {.attempt = 2,
                              .ancestry = {{1, 40}},
                              .loss = 0.5,
                              .finite = true,
                              .evaluation_due = false,
                              .overrides = {"optimizer.lr"},
                              .grown_from = "step-000000000040-a0001.h5",
                              .time = "2025-06-01T12:00:05Z",
                              .host = "here",
                              .metrics = {{"accuracy", {{40, 0.9}}}}});
  return attributes;
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// What versions of PyTorch wrote (tests/golden/torch), whole and as the pickles within.
void write_archives(const std::filesystem::path& folder) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(HOLDFAST_SOURCE_DIR "/tests/golden/torch")) {
    if (entry.path().extension() != ".pt") continue;
    const std::vector<std::byte> bytes = read_file(entry.path());
    const std::string name =
        entry.path().parent_path().filename().string() + "-" + entry.path().stem().string();
    put(folder / "torch_archive" / name, bytes);
    const BytesFile file(bytes);
    const auto entries = internal::read_zip(file);
    if (!std::holds_alternative<std::vector<internal::ZipEntry>>(entries)) continue;
    for (const internal::ZipEntry& part : std::get<std::vector<internal::ZipEntry>>(entries)) {
      if (!part.name.ends_with("/data.pkl")) continue;
      put(folder / "unpickle" / name, std::span(bytes).subspan(part.offset, part.size));
    }
  }
}

void write_all(const std::filesystem::path& folder) {
  write_archives(folder);
  const auto reader = folder / "reader";
  put(reader / "nothing.h5", checkpoint({}, {}));
  put(reader / "one_tensor.h5", checkpoint({{"model/w", DType::float32, {5}}}, of_a_run()));
  put(reader / "every_shape.h5", checkpoint(small_tensors(), of_a_run()));
  put(reader / "newer_minor.h5", of_format(2, 1));
  put(reader / "newer.h5", of_format(2, 2));
}

}}  // namespace holdfast::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 64;
  }
  try {
    holdfast::test::write_all(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "fuzz_seeds: " << error.what() << '\n';
    return 70;
  }
  return 0;
}
