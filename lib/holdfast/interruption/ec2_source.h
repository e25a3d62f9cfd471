// Interruptions as Amazon EC2 announces them to the machine itself, through its metadata service (IMDSv2).
//
// Protocol. PUT /latest/api/token with X-aws-ec2-metadata-token-ttl-seconds: 21600 gives a token, which every
// GET carries in X-aws-ec2-metadata-token; a new one is fetched at 90 % of its life. Under /latest/meta-data/
//   spot/instance-action                     {"action": "terminate", "time": "2025-06-01T12:00:05Z"}; 404 as
//                                            long as nothing is coming. Two minutes ahead, best effort; a
//                                            hibernation begins at once.
//   spot/termination-time                    the older form: a time; 404 or anything else means nothing
//   events/recommendations/rebalance         {"noticeTime": …}: the risk is elevated
//   autoscaling/target-lifecycle-state       Terminated: the group is about to end it
//   events/maintenance/scheduled             [{"Code": "instance-stop", "NotBefore": …, "State": "active"}]
// The first is asked every 2 s, each of the others every 8 s.
//
// What becomes of it:
//   terminate, stop, any other word   NoticeKind::deadline. The earliest of all times that were named counts,
//                                     until 60 s after it: then one to come is announced anew. One that is
//                                     absent, unreadable or has passed is first seen + 110 s.
//   hibernate                         the same with `hibernates`
//   404 after one of these            withdrawn
//   rebalance, Terminated             at_risk, once
//   maintenance                       at_risk, once, when it begins within ten minutes; logged before. Its
//                                     window tells no moment; the shutdown itself sends a SIGTERM.
//   401                               a new token and the request once more, then as 500
//   403                               the source is off (the metadata service is switched off), loudly
//   anything else, no answer in 1 s,  no notice, no end: asked again after 1, 2, 4, 8 s. An answer is no
//   not one JSON object, > 16 KiB     more than 16 KiB, redirections are not followed, no proxy is used.
// When the token does not arrive but the service answers, the usual reason (the answer may make one hop only,
// and a container is the second) is said once, with the remedy; it is asked without a token meanwhile.
//
// Environment: AWS_EC2_METADATA_SERVICE_ENDPOINT (default http://169.254.169.254);
// AWS_EC2_METADATA_DISABLED=true: no source.
// Errors: poll() throws Error for 403, which switches the source off.
// Threads: as source.h says; may_block().
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

struct Ec2Options {
  std::string endpoint = "http://169.254.169.254";  // http:// and no slash at the end
  Duration request_limit = std::chrono::seconds(1);
};

class Ec2Source final : public Source {
 public:
  explicit Ec2Source(Clock& clock = Clock::real(), Ec2Options options = {});
  ~Ec2Source() override;

  std::string_view name() const override { return "ec2"; }
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
