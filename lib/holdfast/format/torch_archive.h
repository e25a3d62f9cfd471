// Reads the tensors of files that PyTorch wrote: torch.save in Python (since 1.6), torch::save and
// torch::pickle_save in C++. No code of the file runs, and only plain values and tensors are accepted, as
// torch.load opens with weights_only=True. A tensor that no checkpoint holds (sparse, quantized) is refused
// by its name, where it is among those that are asked for.
//
// The file counts as hostile. No length becomes an allocation before it is compared with the file's size, and
// overlapping, compressed or endlessly repeated data is refused. The archive's checksums are compared.
//
// Errors: a malformed file is a value (Rejection); an error of the operating system is an IoError.
// Threads: free functions; read_torch starts its own threads and joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/byte_types.h"
#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 {

struct TorchIndex {
  struct Storage {
    std::uint64_t offset = 0;  // in the file
    std::uint64_t size = 0;
    std::uint32_t crc = 0;
  };
  struct Tensor {
    TensorSpec spec;  // its name is the key, which may be any text
    std::size_t storage = 0;
    std::uint64_t offset = 0;           // in the storage, in bytes
    std::vector<std::int64_t> strides;  // in elements
    const ByteType* type = nullptr;     // not null: the tensor's type, and `spec` describes its bytes
  };
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;
  // What lies beside them or among them and is not read: "epoch", "optimizer". At most 1,000.
  std::vector<std::string> others;
};

// Decides by the first bytes.
bool looks_like_torch(const File& file);

// The tensors of one dict of the file: the file's only value, or the one at `key`. `key` may be a path with
// dots ("state.model"). Without a key, the names that trainers use count: "state_dict", "model_state_dict",
// "model" and a few more, or the only dict with tensors. Rejected, with the keys that are there, if none of
// that decides. Tensors of dicts within the dict are named "outer.inner", as those of modules in C++
// archives.
std::variant<TorchIndex, Rejection> read_torch_index(const File& file, std::string_view key = {});

// Reads all tensors of the index into host memory, each as "<group>/<key>", contiguous. Without a group the
// keys are whole names. Attributes name the types of byte_types.h. Rejects keys that are no tensor name here
// (snapshot/tensor_spec.h).
std::variant<std::shared_ptr<Snapshot>, Rejection> read_torch(const File& file, const TorchIndex& index,
                                                              std::string_view group = "model",
                                                              int threads = 2);

}}  // namespace holdfast::v0_2
