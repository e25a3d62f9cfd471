// Interruptions as Google Compute Engine announces them through its metadata server.
//
// Protocol. GET with `Metadata-Flavor: Google`, which the answer carries as well, under
// /computeMetadata/v1/instance/
//   preempted           FALSE; TRUE once the machine is being preempted: 30 s later its power is gone (half a
//                       minute after the ACPI signal that also sends the SIGTERMs). With
//                       wait_for_change=true, last_etag=… and timeout_sec=20 the answer comes when the value
//                       changes, or after 20 s.
//   maintenance-event   NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE. Asking is what
//                       arms it: without a request since the last event there are no 60 s of warning (an hour
//                       on machines with GPUs). Asked between two waits.
//
// What becomes of it: TRUE is NoticeKind::deadline, 25 s after it was seen; FALSE after TRUE is withdrawn;
// TERMINATE… is at_risk, once (Google names no moment, and sends a SIGTERM); MIGRATE… is logged: a live
// migration loses nothing. 404 is nothing, 403 switches the source off, loudly. Anything else, an answer that
// is not Google's, none within 1 s (of the wait: within 22 s): no notice, no end, asked again after 1, 2, 4,
// 8 s.
//
// Environment: GCE_METADATA_HOST (host or host:port; default 169.254.169.254, so that no name is looked up).
// Errors: poll() throws Error for 403, which switches the source off.
// Threads: as source.h says; may_block().
#pragma once

#include <memory>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

struct GcpOptions {
  std::string endpoint = "http://169.254.169.254";  // http:// and no slash at the end
  Duration request_limit = std::chrono::seconds(1);
  Duration wait = std::chrono::seconds(20);        // whole seconds, for a change
  Duration late_answer = std::chrono::seconds(2);  // after such a wait
};

class GcpSource final : public Source {
 public:
  explicit GcpSource(Clock& clock = Clock::real(), GcpOptions options = {});
  ~GcpSource() override;

  std::string_view name() const override { return "gcp"; }
  std::vector<Notice> poll() override;
  // Next to nothing where the server does the waiting.
  Duration interval() const override;
  bool may_block() const override { return true; }
  void cancel() override;
  SourceFigures figures() const override;

 private:
  class Conversation;
  std::unique_ptr<Conversation> conversation_;
};

}  // namespace holdfast::inline v1
