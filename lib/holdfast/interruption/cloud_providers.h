// The clouds whose metadata services announce the end of a machine: one row of kProviders each
// (cloud_providers.cc). A new provider is a source, its row, its test, and its section in
// docs/interruption_sources.md.
//
// Errors: metadata_endpoint() and make_cloud_source() throw UsageError for a variable that holds no plain
// http:// address, or an unknown mode. Threads: any; all read the environment (base/env.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/env.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

struct CloudOptions {
  std::function<bool()> azure_approve = {};  // AzureOptions::approve
  Duration blind_after = kBlindAfter;        // blind time before the warning
};

// What a machine's firmware says of it, in lower case; "" where it says nothing.
class Firmware {
 public:
  explicit Firmware(std::filesystem::path system_root) : root_(std::move(system_root)) {}
  std::string operator()(std::string_view name) const;  // such as "sys_vendor", of sys/class/dmi/id
  bool on_xen() const;
  std::string xen_uuid() const;

 private:
  std::filesystem::path root_;
};

struct CloudProvider {
  std::string_view name;     // of its source: in HOLDFAST_SOURCES, and in notices
  std::string_view company;  // for people
  // The address of its service. If it is set, this machine is the provider's, whatever its firmware says.
  EnvVariable address;
  bool address_is_host = false;              // the provider's own tools want "host[:port]" there
  std::span<const EnvVariable> others = {};  // further variables that its source reads
  const EnvVariable* off = nullptr;          // one of them: true switches the source off
  bool (*is_here)(const Firmware&) = nullptr;
  std::string_view (*default_address)() = [] { return std::string_view("http://169.254.169.254"); };
  std::unique_ptr<Source> (*make)(Clock&, std::string endpoint, const CloudOptions&) = nullptr;
};

std::span<const CloudProvider> cloud_providers();
const CloudProvider* find_provider(std::string_view name);  // null: there is no such provider
std::string provider_companies();                           // "EC2, Google, Azure"

// Null: no evidence of a provider. docs/interruption_sources.md#which-provider lists the evidence.
const CloudProvider* detect_cloud(const std::filesystem::path& system_root = "/");
// "http://host[:port][/path]", from the provider's variable or the default.
std::string metadata_endpoint(const CloudProvider& provider);
bool switched_off(const CloudProvider& provider);
// A source at metadata_endpoint(). Null if the provider is switched off, which is logged.
std::unique_ptr<Source> make_cloud_source(const CloudProvider& provider, Clock& clock,
                                          const CloudOptions& options = {});

}}  // namespace holdfast::v0_2
