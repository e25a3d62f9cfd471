#include "holdfast/format/safetensors_export.h"

#include <algorithm>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/safetensors_writer.h"

namespace holdfast { inline namespace v1 {
namespace {

using internal::damaged;

// The digest's pieces are also the units of transfer, so each piece is hashed in the buffer before it is
// written.
static_assert(kDigestPiece == kTransferBlock);

std::optional<Rejection> copy(const File& from, const IndexedTensor& tensor, SafetensorsWriter& to,
                              ReadMode mode) {
  const std::uint64_t length = tensor.spec.bytes();
  std::vector<Digest> digests;
  for (std::uint64_t done = 0; done < length; done += kDigestPiece) {
    const std::span<std::byte> piece = to.next(std::min(length - done, kDigestPiece));
    const std::uint64_t at = tensor.offset + done;
    if (internal::read_bytes(from, mode, piece, at) < piece.size())
      return damaged("the file became shorter while it was read");
    digests.push_back(digest_of(piece));
  }
  if (combine_digests(digests) == tensor.digest) return std::nullopt;
  return damaged("tensor " + printable(tensor.spec.name) + " (bytes " + std::to_string(tensor.offset) + ".." +
                 std::to_string(tensor.offset + length) + "): digest differs");
}

}  // namespace

std::optional<Rejection> export_safetensors(const File& from, const CheckpointIndex& index,
                                            const std::vector<ExportedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata, File& to,
                                            ReadMode mode) {
  std::vector<TensorSpec> specs;
  for (const ExportedTensor& tensor : tensors) {
    specs.push_back(index.tensors.at(tensor.tensor).spec);
    specs.back().name = tensor.key;
  }
  mode = internal::resolved(mode, from.size());
  SafetensorsWriter writer(to, specs, metadata);
  for (const std::size_t i : writer.order()) {
    if (auto rejection = copy(from, index.tensors[tensors[i].tensor], writer, mode)) return rejection;
  }
  writer.finish();
  return std::nullopt;
}

}}  // namespace holdfast::v1
