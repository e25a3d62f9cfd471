// Interruptions that Amazon EC2 announces through its metadata service (IMDSv2), polled every 2 s.
//
// spot/instance-action is a NoticeKind::deadline (with `hibernates` for a hibernation). A rebalance
// recommendation, a scaling group's termination, and maintenance within ten minutes are at_risk.
// docs/interruption_sources.md#ec2 has the protocol and the answer to every status.
//
// Environment: AWS_EC2_METADATA_SERVICE_ENDPOINT (default http://169.254.169.254),
// AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6 (default then http://[fd00:ec2::254]),
// AWS_EC2_METADATA_DISABLED=true (no source).
// Errors: bad_alloc only. A service that fails or refuses is logged, and never a notice.
// Threads: as source.h says; may_block().
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/interruption/internal/ec2_session.h"
#include "holdfast/interruption/service_source.h"

namespace holdfast { inline namespace v0_2 {

struct Ec2Options {
  std::string endpoint = "http://169.254.169.254";   // http://, without a slash at the end
  Duration request_limit = std::chrono::seconds(1);  // for one request; the service is local, so 1 s is ample
  Duration blind_after = kBlindAfter;                // blind time before the warning
};

class Ec2Source final : public ServiceSource {
 public:
  explicit Ec2Source(Clock& clock = Clock::real(), Ec2Options options = {});
  Duration interval() const override;
  void cancel() override { session_.cancel(); }

 private:
  std::vector<Notice> look() override;
  void look_at_action(std::vector<Notice>& news);
  internal::Ec2Reading get_unless_refused(std::string_view path);
  // nullopt: unknown.
  std::optional<bool> look_at_termination(std::vector<Notice>& news);
  void look_at(std::string_view path, std::vector<Notice>& news);
  void look_at_maintenance(const std::string& body, std::vector<Notice>& news);

  internal::Ec2Session session_;
  std::size_t turn_ = 0;
  bool first_ = true;
  bool rebalanced_ = false;
  bool ending_group_ = false;
  std::set<std::string> told_events_;  // at_risk was told
  std::set<std::string> logged_events_;
};

}}  // namespace holdfast::v0_2
