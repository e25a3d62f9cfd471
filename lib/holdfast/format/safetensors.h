// Reads the safetensors format, in which other tools exchange weights
// (https://huggingface.co/docs/safetensors):
//
//   [0, 8)        N, the header's length, little-endian; at most 100,000,000
//   [8, 8 + N)    the header: a JSON object in UTF-8 that begins with its '{' and may be padded with spaces,
//                 {"__metadata__": {text: text, …}, key: {"dtype", "shape", "data_offsets": [begin, end]}, …}
//   [8 + N, …)    the data, to which the offsets belong. Tensors tile it: no holes, no overlaps, nothing
//                 behind the last. Elements are little-endian, in row-major order.
//
// The file is hostile until it is checked: every length is compared with the file's size before it becomes
// an allocation, sizes that overflow are refused, and so are duplicate keys (which the format forbids and its
// own library lets pass), other members, element types that Holdfast does not have (sub-byte ones), and more
// than 32 dimensions. The format has no digests: bytes that rotted are not seen.
//
// Errors: what is wrong with the file is a value (Rejection); what the operating system refuses is an
// IoError. Threads: free functions on values; `read_safetensors` starts its own threads and is gone with
// them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast::inline v1 {

inline constexpr std::uint64_t kSafetensorsLengthSize = 8;  // in front of the header: its length
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// The format's word for an element type, "BF16"; empty when it has none (complex128).
std::string_view safetensors_name(DType dtype);
std::optional<DType> safetensors_dtype(std::string_view name);

struct SafetensorsIndex {
  struct Tensor {
    TensorSpec spec;           // its name is the file's key: any text
    std::uint64_t offset = 0;  // from data_begin
  };
  std::vector<Tensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // in the file
  std::uint64_t data_length = 0;
};

// By its first nine bytes alone, so that a damaged file is still called by its name. Never true for a
// Holdfast checkpoint.
bool looks_like_safetensors(const File& file);
// The header without its eight bytes of length, for data of `data_length` bytes. Pure; data_begin stays 0.
std::variant<SafetensorsIndex, Rejection> parse_safetensors_header(std::string_view header,
                                                                   std::uint64_t data_length);
std::variant<SafetensorsIndex, Rejection> read_safetensors_index(const File& file);
// All tensors in host memory, each as "<group>/<key>". Rejects keys that cannot be the name of a tensor here
// (snapshot/tensor_spec.h), and truth values that are neither 0 nor 1.
std::variant<std::shared_ptr<Snapshot>, Rejection> read_safetensors(const File& file,
                                                                    const SafetensorsIndex& index,
                                                                    std::string_view group = "model",
                                                                    int threads = 2);

}  // namespace holdfast::inline v1
