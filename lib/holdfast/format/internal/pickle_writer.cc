#include "holdfast/format/internal/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "holdfast/format/internal/pickle_opcodes.h"
#include "holdfast/format/internal/torch_types.h"

namespace holdfast { inline namespace v1 { namespace internal {

PickleWriter::PickleWriter() : out_{static_cast<char>(kOpProto), '\x02'} {}

template <class Integer>
void PickleWriter::number(Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xFFU);
}

void PickleWriter::begin_dict() { (out_ += kOpEmptyDict) += kOpMark; }
void PickleWriter::end_dict() { out_ += kOpSetItems; }
void PickleWriter::begin_list() { (out_ += kOpEmptyList) += kOpMark; }
void PickleWriter::end_list() { out_ += kOpAppends; }
void PickleWriter::begin_tuple() { out_ += kOpMark; }
void PickleWriter::end_tuple() { out_ += kOpTuple; }

void PickleWriter::text(std::string_view utf8) {
  out_ += kOpBinUnicode;
  number(static_cast<std::uint32_t>(utf8.size()));
  out_ += utf8;
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value <= 0xFF) {
    out_ += kOpBinInt1;
    number(static_cast<std::uint8_t>(value));
  } else if (value == static_cast<std::int32_t>(value)) {
    out_ += kOpBinInt;
    number(static_cast<std::uint32_t>(value));
  } else {
    out_ += static_cast<char>(kOpLong1);
    number(static_cast<std::uint8_t>(sizeof value));
    number(static_cast<std::uint64_t>(value));
  }
}

void PickleWriter::real(double value) {
  out_ += kOpBinFloat;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i) & 0xFFU);  // big-endian
}

void PickleWriter::boolean(bool value) { out_ += static_cast<char>(value ? kOpTrue : kOpFalse); }

void PickleWriter::tensor(std::uint64_t storage, DType dtype, std::span<const std::int64_t> shape) {
  const std::string_view storage_class = storage_class_of(dtype);
  const bool untyped = storage_class.empty();
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  std::int64_t elements = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
    elements *= shape[i];
  }
  global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  begin_tuple();
  begin_tuple();
  text("storage");
  if (untyped) {
    global("torch.storage", "UntypedStorage");
  } else {
    global("torch", storage_class);
  }
  text(std::to_string(storage));
  text("cpu");
  integer(untyped ? elements * static_cast<std::int64_t>(size_of(dtype)) : elements);
  end_tuple();
  out_ += kOpBinPersId;
  integer(0);  // offset
  integers(shape);
  integers(strides);
  boolean(false);  // requires_grad
  global("collections", "OrderedDict");
  (out_ += kOpEmptyTuple) += kOpReduce;
  if (untyped) global("torch", name_of(dtype));
  end_tuple();
  out_ += kOpReduce;
}

const std::string& PickleWriter::finish() {
  out_ += kOpStop;
  return out_;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  out_ += kOpGlobal;
  (out_ += module) += '\n';
  (out_ += name) += '\n';
}

void PickleWriter::integers(std::span<const std::int64_t> values) {
  begin_tuple();
  for (const std::int64_t value : values) integer(value);
  end_tuple();
}

}}}  // namespace holdfast::v1::internal
