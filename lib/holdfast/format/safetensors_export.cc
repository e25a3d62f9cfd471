#include "holdfast/format/safetensors_export.h"

#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/tensor_copy.h"
#include "holdfast/format/safetensors_writer.h"

namespace holdfast { inline namespace v0_2 {
std::optional<Rejection> export_safetensors(const File& from, const CheckpointIndex& index,
                                            const std::vector<ExportedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata, File& to,
                                            ReadMode mode, std::optional<DType> as) {
  std::vector<TensorSpec> specs;
  std::vector<const ByteType*> types;
  for (const ExportedTensor& tensor : tensors) {
    specs.push_back(index.tensors.at(tensor.tensor).spec);
    types.push_back(byte_type_of(index.attributes, specs.back()));
    specs.back().name = tensor.key;
    specs.back().dtype = internal::exported_dtype(specs.back().dtype, as);
  }
  // Here, because copy_tensor() sees only a part of the file, and its whole size decides.
  mode = internal::resolved(mode, from.size());
  SafetensorsWriter writer(to, specs, metadata, types);
  // In the order of the new file, which the writer fills from its first byte to its last.
  for (const std::size_t i : writer.order()) {
    auto rejection = internal::copy_tensor(from, index.tensors[tensors[i].tensor], as, mode,
                                           [&](std::uint64_t bytes) { return writer.next(bytes); });
    if (rejection) return rejection;
  }
  writer.finish();
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
