// Writes a pickle (protocol 2) of plain values and tensors, as torch.save does: only what
// torch.load(weights_only=True) and C++'s torch::pickle_load accept.
//
//   PickleWriter pickle;
//   pickle.begin_dict(); pickle.text("weight"); pickle.tensor(…); pickle.end_dict();
//   pickle.finish();
//
// Errors: none. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/format/byte_types.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

enum class Opcode : unsigned char;  // pickle_opcodes.h

class PickleWriter {
 public:
  PickleWriter();

  void begin_dict();  // then keys and values in turns
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void text(std::string_view utf8);  // at most 4 GiB
  void integer(std::int64_t value);
  void real(double value);
  void boolean(bool value);
  void none();
  // A contiguous tensor that fills the storage "data/<storage>" of the archive.
  // `bytes`: not null where `dtype` is uint8, and the tensor is the bytes of that type.
  void tensor(std::uint64_t storage, DType dtype, std::span<const std::int64_t> shape,
              const ByteType* bytes = nullptr);

  const std::string& finish();

 private:
  void put(Opcode opcode);
  template <class Integer>
  void number(Integer value);
  void global(std::string_view module, std::string_view name);
  void integers(std::span<const std::int64_t> values);

  std::string out_;
};

}}}  // namespace holdfast::v0_2::internal
