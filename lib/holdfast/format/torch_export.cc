#include "holdfast/format/torch_export.h"

#include <map>

#include "holdfast/format/internal/pickle/pickle_writer.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/tensor_copy.h"
#include "holdfast/format/internal/zip/zip_writer.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::NewZipEntry;
using internal::ZipWriter;

constexpr std::string_view kByteOrder = "little";
constexpr std::string_view kArchiveVersion = "3\n";  // of the archive's layout, since PyTorch 1.6

}  // namespace

TorchPickle torch_state_dict(const CheckpointIndex& index, const std::vector<ExportedTensor>& tensors,
                             std::optional<DType> as) {
  TorchPickle made;
  made.as = as;
  internal::PickleWriter pickle;
  std::map<std::size_t, std::uint64_t> storages;
  pickle.begin_dict();
  for (const ExportedTensor& exported : tensors) {
    // Shared tensors share one storage, so torch.load() gives aliases again.
    const auto [storage, is_new] = storages.emplace(exported.tensor, storages.size());
    if (is_new) made.storages.push_back({exported.tensor});
    const TensorSpec& spec = index.tensors.at(exported.tensor).spec;
    pickle.text(exported.key);
    pickle.tensor(storage->second, internal::exported_dtype(spec.dtype, as), spec.shape,
                  byte_type_of(index.attributes, spec));
  }
  pickle.end_dict();
  made.pickle = pickle.finish();
  return made;
}

std::optional<Rejection> export_torch(const File& from, const CheckpointIndex& index,
                                      const TorchPickle& pickle, File& to, ReadMode mode) {
  mode = internal::resolved(mode, from.size());
  // PyTorch takes any folder name. A fixed one makes archives of equal tensors equal.
  std::vector<NewZipEntry> entries{{"archive/data.pkl", pickle.pickle.size()},
                                   {"archive/byteorder", kByteOrder.size()}};
  for (std::size_t i = 0; i < pickle.storages.size(); ++i) {
    const auto& [tensor, bytes] = pickle.storages[i];
    std::uint64_t size = bytes.size();
    if (tensor) {
      TensorSpec spec = index.tensors.at(*tensor).spec;
      spec.dtype = internal::exported_dtype(spec.dtype, pickle.as);
      size = spec.bytes();
    }
    entries.push_back({"archive/data/" + std::to_string(i), size});
  }
  entries.push_back({"archive/version", kArchiveVersion.size()});

  ZipWriter zip(to, std::move(entries));
  const auto write = [&](std::string_view text) { zip.write(std::as_bytes(std::span(text))); };
  write(pickle.pickle);
  write(kByteOrder);
  // In the order of `entries`, because a ZipWriter writes them one after the other.
  for (const auto& [tensor, bytes] : pickle.storages) {
    zip.write(bytes);
    if (!tensor) continue;
    auto rejection = internal::copy_tensor(from, index.tensors[*tensor], pickle.as, mode,
                                           [&](std::uint64_t size) { return zip.next(size); });
    if (rejection) return rejection;
  }
  write(kArchiveVersion);
  zip.finish();
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
