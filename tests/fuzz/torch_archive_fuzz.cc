// The reader of PyTorch's archives. The input is the file.
#include "bytes_file.h"
#include "holdfast/format/torch_archive.h"
#include "memory_budget.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast;
  using namespace holdfast::test;
  const auto bytes = std::as_bytes(std::span(data, size));
  const MemoryBudget budget(budget_for(size));
  const BytesFile file(bytes);
  static_cast<void>(looks_like_torch(file));
  const auto read = read_torch_index(file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    require(!rejection->reason.empty(), "a rejection without a reason");
    return 0;
  }
  const auto& index = std::get<TorchIndex>(read);
  require(looks_like_torch(file), "a file that is one does not look like one");
  require(!index.tensors.empty(), "an index without tensors");
  for (const TorchIndex::Storage& storage : index.storages) {
    require(storage.offset <= size && storage.size <= size - storage.offset, "a storage outside of the file");
  }
  for (const TorchIndex::Tensor& tensor : index.tensors) {
    require(tensor.storage < index.storages.size(), "a tensor without a storage");
    require(tensor.strides.size() == tensor.spec.shape.size(), "a stride for each size");
  }
  static_cast<void>(read_torch(file, index, "model", 1));
  return 0;
}
