// Rows of an earlier table that need not be measured again: this very build measured them, with the same options.
//
// Errors: none; what cannot be read is measured again. Threads: free functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "table.h"

namespace holdfast::bench {

// A digest of the running program and of the files in `peers`: the same for equal commits on one machine.
std::string build_of(const std::filesystem::path& peers);

// The measured rows of a table in JSON (output.h), if its build and its options are these.
std::vector<Row> kept_rows(const std::filesystem::path& json, const std::string& build,
                           const std::string& options);

}  // namespace holdfast::bench
