// `holdfast export --base`: the frozen weights that a checkpoint records by digest alone
// (snapshot/digested_tensors.h), read from a file that has them: a checkpoint, or weights of safetensors or
// PyTorch. The exporters then find them behind the checkpoint's own bytes.
//
// Errors: RefusedError, which names the tensor, if the file lacks it or has another; Error with
// ExitCode::difference for a damaged file; IoError. Threads: as File. Memory: the tensors that are read.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "holdfast/cli/files/metered_file.h"
#include "holdfast/format/reader.h"
#include "holdfast/io/read_only_file.h"
#include "holdfast/snapshot/digested_tensors.h"

namespace holdfast { inline namespace v0_2 {

// Reads `wanted` from `path`, and compares each with its digest.
std::shared_ptr<const Snapshot> read_base(const std::filesystem::path& path,
                                          const std::vector<DigestedTensor>& wanted, ReadLimit& limit);
// The index of a checkpoint that has these tensors, too. `base` is what read_base() has read for `wanted`.
CheckpointIndex with_base(CheckpointIndex index, const std::vector<DigestedTensor>& wanted,
                          const Snapshot& base);

// The bytes to that index. Both outlive it; `base` may be null, if with_base() was not needed.
class FileWithBase final : public ReadOnlyFile {
 public:
  FileWithBase(const File& checkpoint, const Snapshot* base);

  std::uint64_t size() const override;
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override;
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override;

 private:
  template <class Read>
  std::size_t read(std::span<std::byte> buffer, std::uint64_t offset, const Read& read_file) const;

  const File& checkpoint_;
  const Snapshot* const base_;
};

}}  // namespace holdfast::v0_2
