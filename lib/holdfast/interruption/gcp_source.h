// Interruptions that Google Compute Engine announces through its metadata server.
//
// `preempted` = TRUE is a NoticeKind::deadline 25 s later. The source waits for a change of it by long
// polling, so a notice takes milliseconds. Maintenance that ends the machine is at_risk; a live migration is
// only logged. docs/interruption_sources.md#google has the protocol and the answer to every status.
//
// Environment: GCE_METADATA_HOST (host or host:port; default 169.254.169.254, which needs no name look-up).
// Errors: bad_alloc only. A server that fails or refuses is logged, and never a notice.
// Threads: as source.h says; may_block().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/interruption/internal/http_client.h"
#include "holdfast/interruption/service_source.h"

namespace holdfast { inline namespace v0_2 {

struct GcpOptions {
  std::string endpoint = "http://169.254.169.254";   // http://, without a slash at the end
  Duration request_limit = std::chrono::seconds(1);  // for one request; the server is local, so 1 s is ample
  Duration wait = std::chrono::seconds(20);          // long poll, in whole seconds; one request per 20 s
  Duration late_answer = std::chrono::seconds(2);    // extra time for the answer after such a wait
  Duration blind_after = kBlindAfter;                // blind time before the warning
};

class GcpSource final : public ServiceSource {
 public:
  explicit GcpSource(Clock& clock = Clock::real(), GcpOptions options = {});
  Duration interval() const override;
  void cancel() override { client_.cancel(); }

 private:
  std::vector<Notice> look() override;
  internal::HttpAnswer ask(std::string_view what, const std::string& parameters, Duration limit);
  std::optional<std::string> beside(std::string_view what, const std::string& parameters);
  void miss(const internal::HttpAnswer& answer);
  void look_at_preempted(std::vector<Notice>& news);
  void look_at_maintenance(std::vector<Notice>& news);
  void look_at_upcoming(std::vector<Notice>& news);

  const GcpOptions options_;
  internal::HttpClient client_;
  std::string etag_;  // of the last value of `preempted`
  std::string maintenance_;
  SteadyTime upcoming_again_;
  std::optional<std::string> told_upcoming_;  // start time of the reported event
  std::optional<std::string> logged_upcoming_;
  bool may_wait_ = false;  // the next request may be a long poll
};

}}  // namespace holdfast::v0_2
