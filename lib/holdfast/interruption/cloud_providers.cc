#include "holdfast/interruption/cloud_providers.h"

#include <strings.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/interruption/azure_source.h"
#include "holdfast/interruption/ec2_source.h"
#include "holdfast/interruption/gcp_source.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr EnvVariable kEc2Variables[] = {
    {"AWS_EC2_METADATA_DISABLED", "true: never ask EC2's metadata service (default false)"},
    {"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
     "IPv6: EC2's metadata service is asked at http://[fd00:ec2::254] (default IPv4)"}};

std::string_view ec2_address() {
  const EnvVariable& mode = kEc2Variables[1];
  const auto word = env_text(mode);
  if (!word || strcasecmp(word->c_str(), "IPv4") == 0) return "http://169.254.169.254";
  if (strcasecmp(word->c_str(), "IPv6") == 0) return "http://[fd00:ec2::254]";
  throw UsageError("environment variable " + std::string(mode.name) + "=" + *word +
                   ": expected IPv4 or IPv6");
}

bool is_ec2(const Firmware& says) {
  // Instances on Xen name Amazon in the version of their BIOS alone.
  if (says("sys_vendor") == "amazon ec2" || says("bios_vendor") == "amazon ec2" ||
      says("bios_version").find("amazon") != std::string::npos || says.xen_uuid().starts_with("ec2")) {
    return true;
  }
  // One of 4096 machines anywhere has such a UUID by chance, so it counts only on Xen.
  const std::string vendor = says("sys_vendor");
  return (vendor.empty() || vendor == "xen") && says.on_xen() && says("product_uuid").starts_with("ec2");
}

// The first row is weak evidence by its UUID, so firmware is compared from the last row to the first.
constexpr CloudProvider kProviders[] = {
    {.name = "ec2",
     .company = "EC2",
     .address = {"AWS_EC2_METADATA_SERVICE_ENDPOINT",
                 "address of EC2's metadata service (default http://169.254.169.254 on EC2's machines)"},
     .others = kEc2Variables,
     .off = &kEc2Variables[0],
     .is_here = &is_ec2,
     .default_address = &ec2_address,
     .make = [](Clock& clock, std::string endpoint, const CloudOptions& options) -> std::unique_ptr<Source> {
       return std::make_unique<Ec2Source>(
           clock, Ec2Options{.endpoint = std::move(endpoint), .blind_after = options.blind_after});
     }},
    {.name = "gcp",
     .company = "Google",
     .address = {"GCE_METADATA_HOST",
                 "host[:port] of Google's metadata server (default 169.254.169.254 on its machines)"},
     .address_is_host = true,
     .is_here = [](const Firmware& says) { return says("product_name") == "google compute engine"; },
     .make = [](Clock& clock, std::string endpoint, const CloudOptions& options) -> std::unique_ptr<Source> {
       return std::make_unique<GcpSource>(
           clock, GcpOptions{.endpoint = std::move(endpoint), .blind_after = options.blind_after});
     }},
    {.name = "azure",
     .company = "Azure",
     .address = {"HOLDFAST_AZURE_METADATA_ENDPOINT",
                 "address of Azure's metadata service (default http://169.254.169.254 on its machines)"},
     // The same on all machines of Azure, and on none of Microsoft's other virtual machines.
     .is_here =
         [](const Firmware& says) { return says("chassis_asset_tag") == "7783-7084-3265-9085-8269-3286-77"; },
     .make = [](Clock& clock, std::string endpoint, const CloudOptions& options) -> std::unique_ptr<Source> {
       return std::make_unique<AzureSource>(clock, AzureOptions{.endpoint = std::move(endpoint),
                                                                .approve = options.azure_approve,
                                                                .blind_after = options.blind_after});
     }},
};

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return line;
}

// Only characters that libcurl takes literally: no user name, no password, no blank, no escape.
bool is_plain(std::string_view address) {
  return !address.empty() && std::all_of(address.begin(), address.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view(".:/-_[]%").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string Firmware::operator()(std::string_view name) const {
  return first_line(root_ / "sys/class/dmi/id" / name);
}

bool Firmware::on_xen() const {
  std::error_code error;
  return std::filesystem::exists(root_ / "sys/hypervisor", error);
}

std::string Firmware::xen_uuid() const { return first_line(root_ / "sys/hypervisor/uuid"); }

std::span<const CloudProvider> cloud_providers() { return kProviders; }

const CloudProvider* find_provider(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kProviders), std::end(kProviders),
                                         [&](const CloudProvider& row) { return row.name == name; });
  return found == std::end(kProviders) ? nullptr : found;
}

std::string provider_companies() {
  std::string text;
  for (const CloudProvider& row : kProviders) text += (text.empty() ? "" : ", ") + std::string(row.company);
  return text;
}

const CloudProvider* detect_cloud(const std::filesystem::path& system_root) {
  for (const CloudProvider& row : kProviders) {
    // A variable wins over the firmware, so that tests and private clouds can point somewhere.
    if (env_text(row.address)) return &row;
  }
  const Firmware firmware(system_root);
  for (std::size_t i = std::size(kProviders); i-- > 0;) {
    if (kProviders[i].is_here(firmware)) return &kProviders[i];
  }
  return nullptr;
}

std::string metadata_endpoint(const CloudProvider& provider) {
  constexpr std::string_view kScheme = "http://";
  const auto given = env_text(provider.address);
  const std::string_view usual = provider.default_address();
  std::string address = given.value_or(std::string(usual));
  // Google's tools accept a bare host.
  if (address.find("://") == std::string::npos) address.insert(0, kScheme);
  // A slash at the end would double the one of the paths.
  while (address.ends_with('/')) address.pop_back();
  if (!address.starts_with(kScheme) || !is_plain(address.substr(kScheme.size()))) {
    throw UsageError("environment variable " + std::string(provider.address.name) + "=" + given.value_or("") +
                     ": expected an address such as http://169.254.169.254");
  }
  return address;
}

bool switched_off(const CloudProvider& provider) {
  return provider.off != nullptr && env_flag(*provider.off).value_or(false);
}

std::unique_ptr<Source> make_cloud_source(const CloudProvider& provider, Clock& clock,
                                          const CloudOptions& options) {
  std::string endpoint = metadata_endpoint(provider);
  if (switched_off(provider)) {
    log_info("{}'s notices are off: {}={}", provider.company, provider.off->name,
             env_text(*provider.off).value_or(""));
    return nullptr;
  }
  return provider.make(clock, std::move(endpoint), options);
}

}}  // namespace holdfast::v0_2
