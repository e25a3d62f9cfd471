// A PyTorch archive: a zip file with a pickle, and one entry for each storage of its tensors.
//
//   PickleArchive archive(file);
//   const PickleValue* model = find(*archive.values().root, "model");
//
// The file counts as hostile: torch_archive.h says what is refused.
//
// Errors: PickleRefusal for a malformed file; IoError. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "holdfast/format/internal/pickle/unpickler.h"
#include "holdfast/format/internal/zip/zip_reader.h"
#include "holdfast/format/torch_archive.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class PickleArchive {
 public:
  explicit PickleArchive(const File& file);
  PickleArchive(const PickleArchive&) = delete;
  PickleArchive& operator=(const PickleArchive&) = delete;

  const Unpickled& values() const { return values_; }
  std::size_t pickle_size() const { return pickle_.size(); }

  // Adds a tensor and its storage. Requires the same index in every call.
  void add(TorchIndex& index, const std::string& name, const PickleTensor& tensor);
  // Refuses repeated views, which could make a large state of a small file.
  void check_size(const TorchIndex& index) const;
  // The bytes of a tensor with one element. Its storage has at most 1 MiB.
  std::string element(const std::string& name, const PickleTensor& tensor) const;

 private:
  std::string archive_name() const;
  const ZipEntry& entry_of(const std::string& name) const;
  const ZipEntry& entry_with(const std::string& name, const PickleTensor& tensor) const;
  std::string text_of(const ZipEntry& entry, std::uint64_t most) const;

  const File& file_;
  std::unordered_map<std::string, ZipEntry> entries_;
  std::string name_;    // the folder in the archive
  std::string pickle_;  // the texts of values_ point into it
  Unpickled values_;
  std::unordered_map<std::string, std::size_t> storages_;  // by key: place in the index
};

// The reason, for a file of PyTorch before 1.6.
std::optional<Rejection> refuse_legacy(const File& file);

}}}  // namespace holdfast::v0_2::internal
