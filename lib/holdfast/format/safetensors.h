// Reads safetensors files, in which other tools exchange weights (https://huggingface.co/docs/safetensors): 8
// bytes with the header's length, a JSON header, then the tensors' bytes.
//
// The file counts as hostile. Every length is compared with the file's size before it becomes an allocation.
// Refused are overflowing sizes, duplicate keys (its own library accepts them), and unknown members. So are
// element types of 6 bits, and more than 32 dimensions. The format has no digests,
// so rotten bytes go unnoticed.
//
// Errors: a malformed file is a value (Rejection); an error of the operating system is an IoError.
// Threads: free functions; read_safetensors starts its own threads and joins them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/byte_types.h"
#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::uint64_t kSafetensorsLengthSize = 8;  // size of the length in front of the header
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// The format's name of an element type, such as "BF16"; empty if it has none (complex128).
std::string_view safetensors_name(DType dtype);
std::optional<DType> safetensors_dtype(std::string_view name);
// Its place in the order of tensors in a file: tensors of a higher rank are written first, as the format's
// own library does. Wide element types come first, so that every tensor is aligned.
int safetensors_rank(DType dtype);

struct SafetensorsIndex {
  struct Tensor {
    TensorSpec spec;                 // its name is the file's key, which may be any text
    std::uint64_t offset = 0;        // from data_begin
    const ByteType* type = nullptr;  // not null: the tensor's type, and `spec` describes its bytes
  };
  std::vector<Tensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // in the file
  std::uint64_t data_length = 0;
};

// Decides by the first nine bytes, so that a damaged file keeps its name in messages. Never true for a
// Holdfast checkpoint.
bool looks_like_safetensors(const File& file);
// Parses the header without its length, for `data_length` bytes of data. Pure; data_begin stays 0.
std::variant<SafetensorsIndex, Rejection> parse_safetensors_header(std::string_view header,
                                                                   std::uint64_t data_length);
std::variant<SafetensorsIndex, Rejection> read_safetensors_index(const File& file);
// Reads all tensors into host memory, each as "<group>/<key>". Attributes name the types of byte_types.h.
// Rejects keys that are no tensor name here
// (snapshot/tensor_spec.h), and booleans other than 0 and 1.
std::variant<std::shared_ptr<Snapshot>, Rejection> read_safetensors(const File& file,
                                                                    const SafetensorsIndex& index,
                                                                    std::string_view group = "model",
                                                                    int threads = 2);

}}  // namespace holdfast::v0_2
