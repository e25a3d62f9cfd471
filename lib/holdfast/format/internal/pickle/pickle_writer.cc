#include "holdfast/format/internal/pickle/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "holdfast/format/internal/pickle/pickle_opcodes.h"
#include "holdfast/format/internal/pickle/torch_types.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Protocol 2, which torch.load() with weights_only=True reads.
PickleWriter::PickleWriter() : out_{static_cast<char>(Opcode::proto), '\x02'} {}

template <class Integer>
void PickleWriter::number(Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xFFU);
}

void PickleWriter::put(Opcode opcode) { out_ += static_cast<char>(opcode); }

void PickleWriter::begin_dict() {
  put(Opcode::empty_dict);
  put(Opcode::mark);
}
void PickleWriter::end_dict() { put(Opcode::set_items); }
void PickleWriter::begin_list() {
  put(Opcode::empty_list);
  put(Opcode::mark);
}
void PickleWriter::end_list() { put(Opcode::appends); }
void PickleWriter::begin_tuple() { put(Opcode::mark); }
void PickleWriter::end_tuple() { put(Opcode::tuple); }

void PickleWriter::text(std::string_view utf8) {
  put(Opcode::bin_unicode);
  number(static_cast<std::uint32_t>(utf8.size()));
  out_ += utf8;
}

void PickleWriter::integer(std::int64_t value) {
  // Short opcodes keep the pickle small.
  if (value >= 0 && value <= 0xFF) {
    put(Opcode::bin_int1);
    number(static_cast<std::uint8_t>(value));
  } else if (value == static_cast<std::int32_t>(value)) {
    put(Opcode::bin_int);
    number(static_cast<std::uint32_t>(value));
  } else {
    put(Opcode::long1);
    number(static_cast<std::uint8_t>(sizeof value));
    number(static_cast<std::uint64_t>(value));
  }
}

void PickleWriter::real(double value) {
  put(Opcode::bin_float);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i) & 0xFFU);  // big-endian
}

void PickleWriter::boolean(bool value) { put(value ? Opcode::yes : Opcode::no); }
void PickleWriter::none() { put(Opcode::nothing); }

void PickleWriter::tensor(std::uint64_t storage, DType dtype, std::span<const std::int64_t> shape,
                          const ByteType* bytes) {
  const std::string_view storage_class = bytes == nullptr ? storage_class_of(dtype) : std::string_view();
  const bool untyped = storage_class.empty();
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  std::int64_t elements = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // A dimension of 0 must not make the strides before it 0, which PyTorch never writes.
    stride *= std::max<std::int64_t>(shape[i], 1);
    elements *= shape[i];
  }
  // Types without a storage class of their own are only known to version 3.
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
  // The place to load to. The checkpoint's own device may be missing on the reader's machine; "cpu" never is.
  text("cpu");
  // An untyped storage counts bytes, the others elements.
  integer(untyped ? elements * static_cast<std::int64_t>(size_of(dtype)) : elements);
  end_tuple();
  // Turns the tuple into a storage on the reading side.
  put(Opcode::bin_pers_id);
  integer(0);  // offset
  integers(shape);
  integers(strides);
  boolean(false);  // requires_grad
  // The backward hooks, which torch.save() writes as an empty OrderedDict for every tensor.
  global("collections", "OrderedDict");
  put(Opcode::empty_tuple);
  put(Opcode::reduce);
  if (untyped) global("torch", bytes != nullptr ? bytes->name : name_of(dtype));
  end_tuple();
  put(Opcode::reduce);
}

const std::string& PickleWriter::finish() {
  put(Opcode::stop);
  return out_;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  put(Opcode::global);
  (out_ += module) += '\n';
  (out_ += name) += '\n';
}

void PickleWriter::integers(std::span<const std::int64_t> values) {
  begin_tuple();
  for (const std::int64_t value : values) integer(value);
  end_tuple();
}

}}}  // namespace holdfast::v0_2::internal
