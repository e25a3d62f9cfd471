// The opcodes of pickles (Python's Lib/pickletools.py) that PyTorch writes for plain values and tensors, in
// Python and in C++. There are no others for the reader.
//
// Errors: none. Threads: constants.
#pragma once

namespace holdfast { inline namespace v0_2 { namespace internal {

enum class Opcode : unsigned char {
  mark = '(',
  stop = '.',
  bin_float = 'G',
  bin_int = 'J',
  bin_int1 = 'K',
  bin_int2 = 'M',
  nothing = 'N',
  bin_pers_id = 'Q',
  reduce = 'R',
  short_bin_string = 'U',
  bin_unicode = 'X',
  empty_list = ']',
  append = 'a',
  build = 'b',
  global = 'c',
  appends = 'e',
  bin_get = 'h',
  long_bin_get = 'j',
  bin_put = 'q',
  long_bin_put = 'r',
  set_item = 's',
  tuple = 't',
  empty_tuple = ')',
  set_items = 'u',
  empty_dict = '}',
  proto = 0x80,
  new_obj = 0x81,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  yes = 0x88,
  no = 0x89,
  long1 = 0x8a,
  empty_set = 0x8f,
};

}}}  // namespace holdfast::v0_2::internal
