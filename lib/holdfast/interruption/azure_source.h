// Interruptions as Azure announces them to the machine itself: scheduled events of its metadata service.
//
// Protocol. GET /metadata/scheduledevents?api-version=2020-07-01 with `Metadata: true`. The first request
// switches the service on for this machine and may take two minutes; it gets them (off the training thread).
//   {"DocumentIncarnation": 7, "Events": [{"EventId": "602d…", "EventType": "Preempt",
//    "EventStatus": "Scheduled", "Resources": ["vm-1"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}
// The list is that of a whole set of machines: an event counts when its Resources name this one, whose name
// comes from /metadata/instance/compute/name. Asked every 2 s.
//
// What becomes of an event:
//   Preempt, Terminate, Reboot, Redeploy,    NoticeKind::deadline at NotBefore. Where that is absent,
//   any other word                           unreadable or has passed: seen + 25 s (Preempt, begun already:
//                                            Azure promises 30) or + 110 s. Of several that are listed, the
//                                            earliest; the next one when that is gone, or outlived by 60 s.
//   Freeze                                   at_risk, once: the machine stands still for seconds
//   gone from the list, or cancelled         withdrawn, when it was the last one
// 404 is nothing, 403 switches the source off, loudly; anything else: no notice, no end, asked again after 1,
// 2, 4, 8 s.
//
// Azure begins at NotBefore, or as soon as an event is approved. Holdfast approves nothing unless asked to:
// `approve` in the options is asked at every poll while an event is pending; once it says yes (the last
// commit is durable, the machine may go), a POST with {"StartRequests": [{"EventId": …}]} approves all that
// were announced.
//
// Environment: HOLDFAST_AZURE_METADATA_ENDPOINT (default http://169.254.169.254).
// Errors: poll() throws Error for 403, which switches the source off.
// Threads: as source.h says; may_block(). `approve` is called by the source's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

struct AzureOptions {
  std::string endpoint = "http://169.254.169.254";  // http:// and no slash at the end
  Duration request_limit = std::chrono::seconds(1);
  Duration first_limit = std::chrono::seconds(130);  // of requests until the first answer
  std::function<bool()> approve = {};
};

class AzureSource final : public Source {
 public:
  explicit AzureSource(Clock& clock = Clock::real(), AzureOptions options = {});
  ~AzureSource() override;

  std::string_view name() const override { return "azure"; }
  std::vector<Notice> poll() override;
  Duration interval() const override;
  bool may_block() const override { return true; }
  void cancel() override;
  SourceFigures figures() const override;

 private:
  class Conversation;
  std::unique_ptr<Conversation> conversation_;
};

}  // namespace holdfast::inline v1
