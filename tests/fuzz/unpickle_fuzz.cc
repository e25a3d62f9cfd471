// The unpickler, and what the reader makes of its values. The input is a pickle; the archive around it is sound,
// with four storages of 64 bytes.
#include <cstring>

#include "bytes_file.h"
#include "holdfast/format/internal/pickle/unpickler.h"
#include "holdfast/format/internal/zip/zip_writer.h"
#include "holdfast/format/torch_archive.h"
#include "memory_budget.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

constexpr std::size_t kStorages = 4;
constexpr std::size_t kStorageSize = 64;

std::vector<std::byte> archive_with(std::span<const std::byte> pickle) {
  MemoryFileSystem disk;
  const auto file = disk.open_file("/a", OpenMode::create);
  std::vector<internal::NewZipEntry> entries{{"a/data.pkl", pickle.size()}};
  for (std::size_t i = 0; i < kStorages; ++i)
    entries.push_back({"a/data/" + std::to_string(i), kStorageSize});
  internal::ZipWriter zip(*file, entries);
  zip.write(pickle);
  const std::vector<std::byte> storage(kStorageSize, std::byte{1});
  for (std::size_t i = 0; i < kStorages; ++i) zip.write(storage);
  zip.finish();
  return disk.get("/a");
}

void check_pickle(std::span<const std::byte> bytes) {
  const MemoryBudget budget(budget_for(bytes.size()));
  const auto read = internal::unpickle({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    require(!rejection->reason.empty(), "a rejection without a reason");
  } else {
    require(std::get<internal::Unpickled>(read).root != nullptr, "a pickle without a value");
  }
}

void check_archive(std::span<const std::byte> pickle) {
  const std::vector<std::byte> bytes = archive_with(pickle);
  const MemoryBudget budget(budget_for(bytes.size()));
  const BytesFile file(bytes);
  const auto index = read_torch_index(file);
  if (const auto* const torch = std::get_if<TorchIndex>(&index)) {
    static_cast<void>(read_torch(file, *torch, "model", 1));
  }
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  holdfast::test::check_pickle(bytes);
  holdfast::test::check_archive(bytes);
  return 0;
}
