#include "holdfast/cli/trial/left_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/ledger/trial.h"

namespace holdfast { inline namespace v0_2 {

LeftFile::LeftFile(const std::filesystem::path& folder, const std::string& name)
    : beside_(trial_run(folder).parent_path() / name),
      in_run_(trial_run(folder) / name),
      outside_(name),
      aside_(name + ".before-check") {
  if (!std::filesystem::exists(outside_)) return;
  if (!std::filesystem::is_regular_file(outside_)) throw UsageError("--output " + name + " is not a file");
  if (std::filesystem::exists(aside_)) {
    throw UsageError(aside_.string() + " exists: a check that was killed left your file there; move it back");
  }
  std::filesystem::rename(outside_, aside_);
  put_aside_ = true;
}

LeftFile::~LeftFile() {
  std::error_code ignored;
  std::filesystem::remove(outside_, ignored);
  // If it fails, the file still lies under the other name, and the next check says so.
  if (put_aside_) std::filesystem::rename(aside_, outside_, ignored);
}

void LeftFile::begin_anew() const { std::filesystem::remove(outside_); }

std::optional<std::string> LeftFile::content() const {
  for (const auto& path : {beside_, in_run_, outside_}) {
    if (!std::filesystem::is_regular_file(path)) continue;
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  return std::nullopt;
}

std::string difference_of_files(const std::string& name, const std::string& straight,
                                const std::optional<std::string>& resumed) {
  if (!resumed) return name + ": the resumed life left no such file";
  if (*resumed == straight) return {};
  const auto at = std::mismatch(straight.begin(), straight.end(), resumed->begin(), resumed->end()).first;
  return name + " differs from byte " + format_count(at - straight.begin()) + " on (" +
         format_count(std::ssize(straight)) + " bytes, resumed: " + format_count(std::ssize(*resumed)) + ")";
}

}}  // namespace holdfast::v0_2
