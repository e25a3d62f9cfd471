// Reads a file of records of one size, each a label byte and then whatever belongs to it (the binary files of
// CIFAR-10). Nothing in such a file says how long it is: the format does, and the file's size and every label
// are checked against it.
//
// Errors: RefusedError that names the file, the byte and what to do; IoError. No LibTorch in here.
// Threads: free function.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace holdfast::inline v1::internal {

struct RecordFormat {
  const char* what = "";    // begins every message: "CIFAR-10"
  const char* remedy = "";  // ends it: what the user can do
  std::int64_t records = 0;
  std::int64_t record_bytes = 0;  // the label's byte among them
  int classes = 0;                // labels are below
};

// Requires: `to` has records · record_bytes bytes. What it holds after an error is unspecified.
void read_record_file(const std::string& path, const RecordFormat& format, std::span<std::uint8_t> to);

}  // namespace holdfast::inline v1::internal
