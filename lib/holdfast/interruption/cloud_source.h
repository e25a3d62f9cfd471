// Finds out which provider this machine belongs to, and then acts as that provider's source. Detection runs
// at the first poll, on the source's own thread. A machine without evidence sends no packet.
//
// Evidence, in this order: the providers' endpoint variables; then the firmware's names in /sys/class/dmi/id;
// for old EC2 machines on Xen, a UUID that begins with "ec2". Unreadable firmware files are no evidence.
// docs/interruption_sources.md#which-provider lists the values and the environment variables.
//
// Errors: make_cloud_source() and metadata_endpoint() throw UsageError for a variable that holds no plain
// http:// address, or an unknown mode. Threads: as source.h says; detect_cloud() may be called from any.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

enum class CloudProvider { ec2, gcp, azure };

struct CloudOptions {
  std::function<bool()> azure_approve = {};  // AzureOptions::approve
  Duration blind_after = kBlindAfter;        // blind time before the warning
};

std::optional<CloudProvider> detect_cloud(const std::filesystem::path& system_root = "/");
// "http://host[:port][/path]", from the provider's variable or the default.
std::string metadata_endpoint(CloudProvider provider);
// A source at metadata_endpoint(). Null for EC2 if AWS_EC2_METADATA_DISABLED is set.
std::unique_ptr<Source> make_cloud_source(CloudProvider provider, Clock& clock, CloudOptions options = {});

class CloudSource final : public Source {
 public:
  explicit CloudSource(Clock& clock = Clock::real(), std::filesystem::path system_root = "/",
                       CloudOptions options = {});
  ~CloudSource() override;

  // "cloud" until the provider is known.
  std::string_view name() const override;
  std::vector<Notice> poll() override;
  Duration interval() const override;
  bool may_block() const override { return true; }
  void cancel() override;
  SourceFigures figures() const override;

 private:
  Source* provider() const;

  struct State;
  std::unique_ptr<State> state_;
};

}}  // namespace holdfast::v0_2
