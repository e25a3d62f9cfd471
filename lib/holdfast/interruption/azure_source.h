// Interruptions that Azure announces: scheduled events of its metadata service, polled every 2 s.
//
// Preempt, Terminate, Reboot, Redeploy and unknown events are a NoticeKind::deadline at NotBefore. A Freeze
// is at_risk: the machine stands still for at most 30 s. docs/interruption_sources.md#azure has the protocol.
//
// Azure ends the machine at NotBefore, or as soon as the event is approved. While an event is pending, each
// poll calls `approve`. Once it returns true (the last commit is durable), a POST approves the announced
// events. A Checkpointer does so in the pause before the end, with CheckpointerOptions::notices.approve_end.
//
// Environment: HOLDFAST_AZURE_METADATA_ENDPOINT (default http://169.254.169.254).
// Errors: bad_alloc only. A service that fails or refuses is logged, and never a notice.
// Threads: as source.h says; may_block(). The source's thread calls `approve`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/interruption/internal/azure_words.h"
#include "holdfast/interruption/internal/http_client.h"
#include "holdfast/interruption/service_source.h"

namespace holdfast { inline namespace v0_2 {

struct AzureOptions {
  std::string endpoint = "http://169.254.169.254";   // http://, without a slash at the end
  Duration request_limit = std::chrono::seconds(1);  // for one request; the service is local, so 1 s is ample
  Duration first_limit = std::chrono::seconds(130);  // until the first answer: Azure may need two minutes
  std::function<bool()> approve = {};                // empty: approve nothing
  Duration blind_after = kBlindAfter;                // blind time before the warning
};

class AzureSource final : public ServiceSource {
 public:
  explicit AzureSource(Clock& clock = Clock::real(), AzureOptions options = {});
  Duration interval() const override;
  void cancel() override { client_.cancel(); }

 private:
  std::vector<Notice> look() override;
  internal::HttpAnswer ask(std::string_view path, Duration limit, std::string body = {});
  void miss(const internal::HttpAnswer& answer, const std::string& why);
  bool know_machine();
  std::optional<std::vector<internal::ScheduledEvent>> events();
  void judge(const std::vector<internal::ScheduledEvent>& events, std::vector<Notice>& news);
  // When the event ends the machine: the time it names, or the one that Azure promises.
  std::optional<SteadyTime> end_of(const internal::ScheduledEvent& event);
  void approve(const std::vector<internal::ScheduledEvent>& events);

  const AzureOptions options_;
  internal::HttpClient client_;
  std::string machine_;
  bool answered_ = false;
  std::optional<WallTime> service_now_;
  // First sight of events that have begun, or that name no believable time, by id and status.
  std::map<std::pair<std::string, std::string>, SteadyTime> soon_;
  std::set<std::string> frozen_;
  std::set<std::string> approved_;
};

}}  // namespace holdfast::v0_2
