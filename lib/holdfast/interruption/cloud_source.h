// Finds out which provider this machine belongs to, and then is that provider's source. All of it happens on
// the source's own thread, at its first poll.
//
// Evidence, in this order; a machine without any is asked nothing, and no packet leaves it:
//   the environment   AWS_EC2_METADATA_SERVICE_ENDPOINT, GCE_METADATA_HOST or
//                     HOLDFAST_AZURE_METADATA_ENDPOINT
//   Google            /sys/class/dmi/id: product_name "Google Compute Engine"
//   Azure             chassis_asset_tag 7783-7084-3265-9085-8269-3286-77, which Microsoft's other virtual
//                     machines do not have
//   EC2               sys_vendor or bios_vendor "Amazon EC2", bios_version with "amazon". Old machines on Xen
//                     have none of these, but a UUID that begins with "ec2": /sys/hypervisor/uuid, or, where
//                     /sys/hypervisor exists and sys_vendor is "Xen", empty or unreadable, product_uuid. One
//                     of 4096 other machines has such a UUID.
// Firmware files that cannot be read are no evidence.
//
// AWS_EC2_METADATA_DISABLED=true: as if the machine were not EC2's.
// Errors: UsageError, from make_cloud_source and metadata_endpoint, for a variable that holds no plain
// http:// address. Threads: as source.h says; detect_cloud by any.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

enum class CloudProvider { ec2, gcp, azure };

std::optional<CloudProvider> detect_cloud(const std::filesystem::path& system_root = "/");
// "http://host[:port][/path]", from the provider's variable or its default.
std::string metadata_endpoint(CloudProvider provider);
// At the endpoint of the environment. Null for EC2 where it is disabled.
std::unique_ptr<Source> make_cloud_source(CloudProvider provider, Clock& clock);

class CloudSource final : public Source {
 public:
  explicit CloudSource(Clock& clock = Clock::real(), std::filesystem::path system_root = "/");
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

}  // namespace holdfast::inline v1
