#include "holdfast/interruption/cloud_source.h"

#include <strings.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"
#include "holdfast/interruption/azure_source.h"
#include "holdfast/interruption/ec2_source.h"
#include "holdfast/interruption/gcp_source.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The chassis asset tag of Azure's machines, the same everywhere.
constexpr std::string_view kAzureTag = "7783-7084-3265-9085-8269-3286-77";
// The poll interval if there is no service to ask.
constexpr Duration kIdle = std::chrono::hours(1);

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return line;
}

// One of 4096 machines anywhere has such a UUID by chance, so it counts only on Xen.
bool has_ec2_uuid(const std::filesystem::path& dmi, const std::filesystem::path& root) {
  const std::filesystem::path hypervisor = root / "sys/hypervisor";
  if (first_line(hypervisor / "uuid").starts_with("ec2")) return true;
  std::error_code error;
  const std::string vendor = first_line(dmi / "sys_vendor");
  return (vendor.empty() || vendor == "xen") && std::filesystem::exists(hypervisor, error) &&
         first_line(dmi / "product_uuid").starts_with("ec2");
}

bool is_ec2(const std::filesystem::path& dmi, const std::filesystem::path& root) {
  // Instances on Xen name Amazon in the version of their BIOS alone.
  return first_line(dmi / "sys_vendor") == "amazon ec2" || first_line(dmi / "bios_vendor") == "amazon ec2" ||
         first_line(dmi / "bios_version").find("amazon") != std::string::npos || has_ec2_uuid(dmi, root);
}

const EnvVariable& variable_of(CloudProvider provider) {
  switch (provider) {
    case CloudProvider::gcp:
      return kEnvGcpHost;
    case CloudProvider::azure:
      return kEnvAzureEndpoint;
    case CloudProvider::ec2:
      break;
  }
  return kEnvEc2Endpoint;
}

bool asks_by_ipv6() {
  const auto mode = env_text(kEnvEc2Mode);
  if (!mode || strcasecmp(mode->c_str(), "IPv4") == 0) return false;
  if (strcasecmp(mode->c_str(), "IPv6") == 0) return true;
  throw UsageError("environment variable " + std::string(kEnvEc2Mode.name) + "=" + *mode +
                   ": expected IPv4 or IPv6");
}

// Only characters that libcurl takes literally: no user name, no password, no blank, no escape.
bool is_plain(std::string_view address) {
  return !address.empty() && std::all_of(address.begin(), address.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view(".:/-_[]%").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::optional<CloudProvider> detect_cloud(const std::filesystem::path& system_root) {
  for (const CloudProvider provider : {CloudProvider::ec2, CloudProvider::gcp, CloudProvider::azure}) {
    // A variable wins over the firmware, so that tests and private clouds can point somewhere.
    if (env_text(variable_of(provider))) return provider;
  }
  const std::filesystem::path dmi = system_root / "sys/class/dmi/id";
  // Google and Azure first, because their marks are exact, while EC2's includes a weaker one.
  if (first_line(dmi / "product_name") == "google compute engine") return CloudProvider::gcp;
  if (first_line(dmi / "chassis_asset_tag") == kAzureTag) return CloudProvider::azure;
  if (is_ec2(dmi, system_root)) return CloudProvider::ec2;
  return std::nullopt;
}

std::string metadata_endpoint(CloudProvider provider) {
  constexpr std::string_view kScheme = "http://";
  const EnvVariable& variable = variable_of(provider);
  const auto given = env_text(variable);
  const bool by_ipv6 = provider == CloudProvider::ec2 && asks_by_ipv6();
  std::string address = given.value_or(by_ipv6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254");
  // Google's tools accept a bare host.
  if (address.find("://") == std::string::npos) address.insert(0, kScheme);
  // A slash at the end would double the one of the paths.
  while (address.ends_with('/')) address.pop_back();
  if (!address.starts_with(kScheme) || !is_plain(address.substr(kScheme.size()))) {
    throw UsageError("environment variable " + std::string(variable.name) + "=" + given.value_or("") +
                     ": expected an address such as http://169.254.169.254");
  }
  return address;
}

std::unique_ptr<Source> make_cloud_source(CloudProvider provider, Clock& clock, CloudOptions options) {
  std::string endpoint = metadata_endpoint(provider);
  switch (provider) {
    case CloudProvider::gcp:
      return std::make_unique<GcpSource>(
          clock, GcpOptions{.endpoint = std::move(endpoint), .blind_after = options.blind_after});
    case CloudProvider::azure:
      return std::make_unique<AzureSource>(clock, AzureOptions{.endpoint = std::move(endpoint),
                                                               .approve = std::move(options.azure_approve),
                                                               .blind_after = options.blind_after});
    case CloudProvider::ec2:
      break;
  }
  if (env_flag(kEnvEc2Disabled).value_or(false)) {
    log_info("EC2's notices are off: {}={}", kEnvEc2Disabled.name, env_text(kEnvEc2Disabled).value_or(""));
    return nullptr;
  }
  return std::make_unique<Ec2Source>(
      clock, Ec2Options{.endpoint = std::move(endpoint), .blind_after = options.blind_after});
}

struct CloudSource::State {
  Clock& clock;
  std::filesystem::path system_root;
  CloudOptions options;
  bool looked = false;  // used by the source's thread only
  Mutex mutex = {};
  std::unique_ptr<Source> provider HOLDFAST_GUARDED_BY(mutex) = {};
  std::string why_none HOLDFAST_GUARDED_BY(mutex) = {};  // set after the look if there is no provider
  bool cancelled HOLDFAST_GUARDED_BY(mutex) = false;
};

CloudSource::CloudSource(Clock& clock, std::filesystem::path system_root, CloudOptions options)
    : state_(
          new State{.clock = clock, .system_root = std::move(system_root), .options = std::move(options)}) {}

CloudSource::~CloudSource() = default;

// The pointer stays valid: the provider is set once and never replaced.
Source* CloudSource::provider() const {
  const MutexLock lock(state_->mutex);
  return state_->provider.get();
}

std::string_view CloudSource::name() const {
  const Source* const source = provider();
  return source != nullptr ? source->name() : "cloud";
}

std::vector<Notice> CloudSource::poll() {
  // Looks on the source's own thread: reading the firmware's files must not delay the start.
  if (!std::exchange(state_->looked, true)) {
    std::unique_ptr<Source> found;
    const auto cloud = detect_cloud(state_->system_root);
    if (cloud) found = make_cloud_source(*cloud, state_->clock, state_->options);
    if (found) {
      log_info("this is a machine of {}: Holdfast polls its notices", found->name());
    } else if (!cloud) {
      log_debug("this machine is not on EC2, Google Cloud or Azure: no provider announces its end");
    }
    const MutexLock lock(state_->mutex);
    if (!cloud) state_->why_none = "this machine's firmware names none of EC2, Google and Azure";
    if (cloud && !found) state_->why_none = "AWS_EC2_METADATA_DISABLED is set";
    state_->provider = std::move(found);
    // cancel() may have come during the look, and must not be lost.
    if (state_->cancelled && state_->provider) state_->provider->cancel();
  }
  Source* const source = provider();
  return source != nullptr ? source->poll() : std::vector<Notice>();
}

Duration CloudSource::interval() const {
  const Source* const source = provider();
  return source != nullptr ? source->interval() : kIdle;
}

void CloudSource::cancel() {
  // Under the lock, so that a provider that appears at this moment is cancelled as well.
  const MutexLock lock(state_->mutex);
  state_->cancelled = true;
  if (state_->provider) state_->provider->cancel();
}

SourceFigures CloudSource::figures() const {
  const MutexLock lock(state_->mutex);
  if (state_->provider) return state_->provider->figures();
  SourceFigures figures;
  figures.why = state_->why_none;
  return figures;
}

}}  // namespace holdfast::v0_2
