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

#include <string>

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
};

}}  // namespace holdfast::v0_2
