// Formats texts and numbers one after the other into a buffer. Requires that all of it fits.
//
// Errors: none. Threads: one. Allocates nothing.
#pragma once

#include <charconv>
#include <span>
#include <string_view>

#include "holdfast/base/bits.h"

namespace holdfast { inline namespace v0_2 {

class BufferWriter {
 public:
  explicit BufferWriter(std::span<char> buffer) : buffer_(buffer) {}

  BufferWriter& text(std::string_view text) {
    used_ += text.copy(rest().data(), rest().size());
    return *this;
  }
  template <class Integer>
  BufferWriter& integer(Integer value) {
    const std::span<char> room = rest();
    used_ += static_cast<std::size_t>(std::to_chars(room.data(), room.data() + room.size(), value).ptr -
                                      room.data());
    return *this;
  }
  // The shortest decimal that parses to the same bits.
  BufferWriter& number(double value) {
    used_ += write_shortest_decimal(value, rest());
    return *this;
  }
  BufferWriter& bits(double value) {
    write_bits_hex(value, rest());
    used_ += 16;
    return *this;
  }
  std::string_view done() const { return {buffer_.data(), used_}; }

 private:
  std::span<char> rest() const { return buffer_.subspan(used_); }

  std::span<char> buffer_;
  std::size_t used_ = 0;
};

}}  // namespace holdfast::v0_2
