// Reads pickles as PyTorch writes them, and runs no code: it knows 27 opcodes and the few names that plain
// values and tensors need. Any other opcode, class or function is refused with its name.
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

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct PickleStorage {
  std::optional<DType> dtype;  // unset: untyped, elements are bytes
  std::string_view key;        // its entry is "<archive>/data/<key>"
  std::uint64_t elements = 0;
};

struct PickleTensor {
  const PickleStorage* storage = nullptr;
  DType dtype = DType::float32;
  std::uint64_t offset = 0;  // in elements. The whole tensor lies within the storage
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
    tensor
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
    Characters characters;  // of a text, or a name as "module\nname"
  };
  // Of a list or tuple; of a dict keys and values in turns; of an object its dict. May contain itself.
  std::vector<const PickleValue*> items = {};

  std::string_view text() const { return {characters.data, characters.size}; }
};

struct Unpickled {
  // Texts point into the pickle.
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
