#include "holdfast/cli/sweep/visible_gpus.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool is_mig_slice(const std::string& device) { return device.starts_with("MIG-"); }

// nullopt: not set. env_text() does not tell that from an empty value, which hides all GPUs.
std::optional<std::string> devices_by_environment() {
  std::string name = kEnvVisibleDevices.name;
  name += '=';
  for (const std::string& entry : environment_for_child({})) {
    if (entry.starts_with(name)) return entry.substr(name.size());
  }
  return std::nullopt;
}

// As CUDA does: what follows a device that is none does not count ("NoDevFiles", "-1").
std::vector<std::string> devices_in(const std::string& list) {
  std::vector<std::string> devices;
  std::istringstream stream(list);
  for (std::string device; std::getline(stream, device, ',');) {
    device.erase(0, device.find_first_not_of(' '));
    device.erase(device.find_last_not_of(' ') + 1);
    const bool number = !device.empty() && std::all_of(device.begin(), device.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    if (!number && !device.starts_with("GPU-") && !is_mig_slice(device)) break;
    devices.push_back(device);
  }
  return devices;
}

// Lines such as "GPU 0: NVIDIA H100 (UUID: GPU-5c…)", and below it "  MIG 3g.40gb Device 0: (UUID: MIG-9a…)".
std::vector<std::string> devices_by_driver() {
  const std::unique_ptr<FILE, int (*)(FILE*)> listing(popen("nvidia-smi -L 2>/dev/null", "r"), pclose);
  std::vector<std::string> devices;
  if (!listing) return devices;
  std::array<char, 1000> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), listing.get()) != nullptr) {
    const std::string text = line.data();
    constexpr std::string_view kUuid = "(UUID: ";
    const std::size_t begin = text.find(kUuid);
    const std::size_t end = text.find(')', begin == std::string::npos ? 0 : begin);
    if (begin == std::string::npos || end == std::string::npos) continue;
    const std::string uuid = text.substr(begin + kUuid.size(), end - begin - kUuid.size());
    // Of a GPU that is cut into slices, only the slices can be used.
    if (is_mig_slice(uuid) && !devices.empty() && !is_mig_slice(devices.back())) devices.pop_back();
    devices.push_back(uuid);
  }
  return devices;
}

}  // namespace

std::vector<std::string> visible_gpus() {
  if (const auto named = devices_by_environment()) return devices_in(*named);
  return devices_by_driver();
}

std::vector<std::string> shares_of_gpus(const std::vector<std::string>& gpus, std::size_t runs) {
  if (gpus.empty()) return {};
  if (gpus.size() < runs) {
    throw UsageError("--local " + std::to_string(runs) + ": there are " + std::to_string(gpus.size()) +
                     " GPUs or MIG slices here, and each run needs one of its own");
  }
  const bool slices = std::any_of(gpus.begin(), gpus.end(), is_mig_slice);
  const std::size_t each = slices ? 1 : gpus.size() / runs;
  if (each * runs < gpus.size()) {
    log_info("{} of {} GPUs or MIG slices stay idle: each of {} runs gets {}", gpus.size() - each * runs,
             gpus.size(), runs, each);
  }
  std::vector<std::string> shares;
  for (std::size_t run = 0; run < runs; ++run) {
    std::string share;
    for (std::size_t i = 0; i < each; ++i) share += (i == 0 ? "" : ",") + gpus[run * each + i];
    shares.push_back(share);
  }
  return shares;
}

}}  // namespace holdfast::v0_2
