// The checks of `holdfast doctor`: each looks at one thing that a run depends on, and changes nothing.
//
// Errors: none; what cannot be found out is a finding. Threads: one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

struct Finding {
  enum class Verdict { ok, warning, failed };
  Verdict verdict = Verdict::ok;
  std::string what;    // one word or two: "driver"
  std::string text;    // what was found
  std::string remedy;  // empty if ok
};

// `directory`: LibTorch's, with lib/ or torch/lib/.
std::vector<Finding> check_libtorch(const std::filesystem::path& directory);
// The driver, its GPUs with MIG, and NCCL. Loads their libraries; creates no context on a device.
std::vector<Finding> check_gpus(const std::filesystem::path& libtorch);
// libcurl, which is loaded when a metadata service is asked.
std::vector<Finding> check_libraries();
// Asks the metadata service of this machine's provider once, if there is one: about a second.
std::vector<Finding> check_metadata_service(Clock& clock, const std::filesystem::path& system_root = "/");
// Writes 64 MiB into a temporary folder below `directory`, as `holdfast probe` does.
std::vector<Finding> check_volume(const std::filesystem::path& directory);
std::vector<Finding> check_clock();
std::vector<Finding> check_limits(const std::filesystem::path& system_root = "/");
std::vector<Finding> check_signals(const std::filesystem::path& system_root = "/");
std::vector<Finding> check_grace(const std::filesystem::path& system_root = "/");

}}  // namespace holdfast::v0_2
