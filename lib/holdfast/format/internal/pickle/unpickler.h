// Reads pickles as PyTorch writes them, and runs no code: it knows the opcodes of torch.load with
// weights_only=True, and the few names (pickle_names.h) that plain values and tensors need. Any other opcode,
// class or function is refused with its name. Values that no weights need are read past.
//
// The bytes count as hostile. Memory is at most 96 bytes a byte of the pickle, and kMostPickleMemory; nothing
// recurses.
//
// Errors: a Rejection. Threads: pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/internal/pickle/torch_types.h"
#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct PickleStorage {
  std::optional<TorchType> type;  // unset: untyped
  std::string_view key;           // its entry is "<archive>/data/<key>"
  std::uint64_t elements = 0;

  // Bytes of one element.
  std::uint64_t unit() const { return type && type->dtype ? size_of(*type->dtype) : 1; }
};

struct PickleTensor {
  const PickleStorage* storage = nullptr;
  DType dtype = DType::float32;
  const ByteType* type = nullptr;  // not null: `dtype` is uint8, and this is the type's name
  std::uint64_t offset = 0;        // in elements. The whole tensor lies within the storage
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // not negative; 0 repeats elements
};

struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    name,
    list,
    tuple,
    dict,
    object,
    storage,
    tensor,
    opaque,      // a plain value that no weights need: bytes, a set, a number of more than 64 bits
    unstorable,  // a tensor that no checkpoint holds; its text says why, and what to do
  };
  struct Characters {
    const char* data;
    std::size_t size;
  };
  Kind kind = Kind::none;
  union {
    std::int64_t integer = 0;  // also of a boolean
    double real;
    const PickleStorage* storage;
    const PickleTensor* tensor;
    Characters characters;  // of a text or a refused tensor, or a name as "module\nname"
  };
  // Elements of a list or tuple; keys and values of a dict in turns; an object's dict. May contain itself.
  std::vector<const PickleValue*> items = {};

  std::string_view text() const { return {characters.data, characters.size}; }
};

struct Unpickled {
  // Texts point into the pickle, or to constants.
  std::deque<PickleValue> values;
  std::deque<PickleStorage> storages;
  std::deque<PickleTensor> tensors;
  const PickleValue* root = nullptr;
};

inline constexpr std::uint64_t kMaxPickle = 64U << 20U;
// A pickle of tensors needs 5 to 8 bytes a byte, so the largest one fits. Only nonsense (a million empty
// lists) needs more.
inline constexpr std::uint64_t kMostPickleMemory = 8 * kMaxPickle;

// Requires that `pickle` outlives the result.
std::variant<Unpickled, Rejection> unpickle(std::string_view pickle);

}}}  // namespace holdfast::v0_2::internal
