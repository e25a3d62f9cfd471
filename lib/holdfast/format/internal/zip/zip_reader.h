// Reads the directory of a zip archive, as PyTorch writes them: one disk, no comment, no encryption. Entries
// may be compressed (C++ compresses its code), but only stored ones can be read.
//
// The file counts as hostile. Refused are entries that overlap or reach out of the file, two of one name, a
// directory that disagrees with the headers of the entries, more than a million entries, and a directory of
// more than 256 MiB. No length becomes an allocation before it is compared with the file's size.
//
// Errors: a malformed file is a value; IoError. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct ZipEntry {
  std::string name;
  bool stored = true;
  std::uint64_t offset = 0;  // of its data, in the file
  std::uint64_t size = 0;    // of its data in the file
  std::uint32_t crc = 0;
};

bool looks_like_zip(const File& file);  // by its first four bytes
// In the order of the directory.
std::variant<std::vector<ZipEntry>, Rejection> read_zip(const File& file);

}}}  // namespace holdfast::v0_2::internal
