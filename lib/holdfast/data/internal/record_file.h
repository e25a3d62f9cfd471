// Reads a file of records of equal size, each a label byte and its data (CIFAR-10's binary files). Such a
// file does not contain its length; the format defines it. The file's size and every label are checked
// against the format.
//
// Errors: RefusedError, which names the file, the byte and what to do; IoError. Does not use LibTorch.
// Threads: free function.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct RecordFormat {
  const char* what = "";    // first words of every message: "CIFAR-10"
  const char* remedy = "";  // last words: what the user can do
  std::int64_t records = 0;
  std::int64_t record_bytes = 0;  // including the label byte
  int classes = 0;                // labels are below this
};

// Requires: `to` has records * record_bytes bytes. After an error its content is unspecified.
void read_record_file(const std::string& path, const RecordFormat& format, std::span<std::uint8_t> to);

}}}  // namespace holdfast::v0_2::internal
