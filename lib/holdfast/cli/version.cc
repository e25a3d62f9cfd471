#include "holdfast/cli/version.h"

#include <gnu/libc-version.h>
#include <xxhash.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string numbers(int major, int minor, int patch) {
  return std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(patch);
}

}  // namespace

const std::string_view kVersion = HOLDFAST_VERSION;

std::string version_text() {
  std::string text = "holdfast " HOLDFAST_VERSION ", checkpoint format " + std::to_string(kFormatVersion);
  text.append("\ncommit ").append(kCommit);
  // glibc at run time: the tools' tarball runs with other versions than the one that it was built with.
  text.append("\ncompiler " HOLDFAST_COMPILER " " HOLDFAST_COMPILER_VERSION ", libstdc++ " +
              std::to_string(_GLIBCXX_RELEASE) + ", running with glibc ")
      .append(gnu_get_libc_version());
  text.append("\nlibraries CLI11 " CLI11_VERSION);
  text.append(", nlohmann-json " +
              numbers(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  text.append(", xxHash " + numbers(XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE));
  text.append(", cpp-httplib ").append(http_library_version());
  return text;
}

}}  // namespace holdfast::v0_2
