// The opcodes of pickles (Python's Lib/pickletools.py) that PyTorch writes for plain values and tensors, in
// Python and in C++. There are no others for the reader.
//
// Errors: none. Threads: constants.
#pragma once

namespace holdfast { inline namespace v1 { namespace internal {

enum Opcode : unsigned char {  // NOLINT(performance-enum-size)
  kOpMark = '(',
  kOpStop = '.',
  kOpBinFloat = 'G',
  kOpBinInt = 'J',
  kOpBinInt1 = 'K',
  kOpBinInt2 = 'M',
  kOpNone = 'N',
  kOpBinPersId = 'Q',
  kOpReduce = 'R',
  kOpBinUnicode = 'X',
  kOpEmptyList = ']',
  kOpAppend = 'a',
  kOpBuild = 'b',
  kOpGlobal = 'c',
  kOpAppends = 'e',
  kOpBinGet = 'h',
  kOpLongBinGet = 'j',
  kOpBinPut = 'q',
  kOpLongBinPut = 'r',
  kOpSetItem = 's',
  kOpTuple = 't',
  kOpEmptyTuple = ')',
  kOpSetItems = 'u',
  kOpEmptyDict = '}',
  kOpProto = 0x80,
  kOpNewObj = 0x81,
  kOpTuple1 = 0x85,
  kOpTuple2 = 0x86,
  kOpTuple3 = 0x87,
  kOpTrue = 0x88,
  kOpFalse = 0x89,
  kOpLong1 = 0x8a,
};

}}}  // namespace holdfast::v1::internal
