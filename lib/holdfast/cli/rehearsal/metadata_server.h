// A metadata server with a script: it answers as EC2 (IMDSv2), Google and Azure do about the end of a
// machine, on a free port of 127.0.0.1. `holdfast rehearse` runs users' programs against it, tests run our
// sources against failures.
//
//   MetadataServer server;      // a machine without an interruption; a child gets server.environment(…)
//   server.announce({.in = 120s});                      // or withdraw()
//   server.answer(MetadataServer::kEc2Action, {.status = 500});       // replaces the answer of one path
//
// It requires a token on EC2 (otherwise 401), `Metadata-Flavor: Google`, and `Metadata: true` on Azure.
// Errors: the constructor throws IoError without a port; other methods throw only bad_alloc.
// Threads: all methods from any thread. Each connection has a thread. Time is the given clock's, except for
// Manner::drip and waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/cloud_providers.h"

namespace holdfast { inline namespace v0_2 {

enum class Manner {
  normal,
  no_answer,    // reads the request and never answers
  half_a_body,  // sends the head and half of the body
  drip,         // sends one byte of the body every 50 ms
};

struct ScriptedAnswer {
  int status = 200;
  std::string body = {};
  Manner manner = Manner::normal;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Called for each request, instead of `body`: for a time that slides.
  std::function<std::string()> make_body = {};
};

struct Interruption {
  Duration in = std::chrono::seconds(120);
  std::string action = "terminate";  // in EC2's words: terminate, stop, hibernate
};

class MetadataServer {
 public:
  static constexpr std::string_view kEc2Token = "/latest/api/token";
  static constexpr std::string_view kEc2Action = "/latest/meta-data/spot/instance-action";
  static constexpr std::string_view kEc2Termination = "/latest/meta-data/spot/termination-time";
  static constexpr std::string_view kEc2Rebalance = "/latest/meta-data/events/recommendations/rebalance";
  static constexpr std::string_view kEc2Lifecycle = "/latest/meta-data/autoscaling/target-lifecycle-state";
  static constexpr std::string_view kEc2Maintenance = "/latest/meta-data/events/maintenance/scheduled";
  static constexpr std::string_view kGcpPreempted = "/computeMetadata/v1/instance/preempted";
  static constexpr std::string_view kGcpMaintenance = "/computeMetadata/v1/instance/maintenance-event";
  static constexpr std::string_view kGcpUpcoming = "/computeMetadata/v1/instance/upcoming-maintenance";
  static constexpr std::string_view kAzureEvents = "/metadata/scheduledevents";
  static constexpr std::string_view kAzureName = "/metadata/instance/compute/name";
  static constexpr std::string_view kVirtualMachine = "rehearsal-vm";  // its name on Azure

  // Closes a connection that is silent for `keep_alive` (whole seconds).
  explicit MetadataServer(Clock& clock = Clock::real(), Duration keep_alive = std::chrono::seconds(5));
  // Closes every connection; waits at most `keep_alive` for one that the client keeps open.
  ~MetadataServer();
  MetadataServer(const MetadataServer&) = delete;
  MetadataServer& operator=(const MetadataServer&) = delete;

  int port() const;
  std::string host() const;      // "127.0.0.1:41234", for GCE_METADATA_HOST
  std::string endpoint() const;  // "http://127.0.0.1:41234", for the other variables
  // Variables that make our sources, and the provider's own tools, ask this server. `provider`: "ec2", "gcp"
  // or "azure".
  std::map<std::string, std::string> environment(std::string_view provider) const;

  // Announces it in the words of all providers. A second call replaces the first.
  void announce(const Interruption& interruption);
  void withdraw();
  // Announces EC2's rebalance recommendation.
  void recommend_rebalance();

  // Answers this path so from `after` on (default: now), until another call replaces it.
  void answer(std::string_view path, ScriptedAnswer answer, Duration after = Duration::zero());
  // Answers so only for the next `times` requests.
  void next(std::string_view path, const ScriptedAnswer& answer, int times = 1);
  // Returns to the server's own answer.
  void forget(std::string_view path);

  // EC2: all tokens given so far become invalid.
  void expire_tokens();
  // EC2: false accepts requests without a token (IMDSv1). Default true.
  void require_token(bool required);

  std::int64_t requests() const;  // of all kinds, including refused ones
  std::int64_t requests(std::string_view path) const;
  std::int64_t connections() const;  // with at least one request
  // Azure: the approved events.
  std::vector<std::string> approved() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The version of cpp-httplib, which the server is made with.
std::string_view http_library_version();

}}  // namespace holdfast::v0_2
