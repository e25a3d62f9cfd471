// Which Holdfast this program is, for --version, reports, and questions to its authors. Errors: none.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace holdfast { inline namespace v0_2 {

extern const std::string_view kVersion;  // "0.2.0"
extern const std::string_view kCommit;   // in full, or "unknown" if the sources were not a git repository

// Four lines: version and checkpoint format, commit, compiler, libraries.
std::string version_text();

}}  // namespace holdfast::v0_2
