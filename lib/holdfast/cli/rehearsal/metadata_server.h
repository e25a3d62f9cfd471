// A metadata server that plays a script: what EC2 (IMDSv2), Google and Azure tell a virtual machine about its
// end, on a free port of 127.0.0.1. `holdfast rehearse` runs people's programs against it, the tests run our
// sources against everything that can go wrong with the real ones.
//
//   MetadataServer server;                              // a machine to which nothing happens
//   … a child with server.environment(CloudProvider::ec2) in its environment …
//   server.announce({.in = 120s});                      // from now on an interruption is coming
//   server.withdraw();                                  // after all not
//
// Anything else is an answer for one path, which beats what the server would say by itself:
//
//   server.answer(MetadataServer::kEc2Action, {.status = 500});
//   server.next(MetadataServer::kEc2Token, {.status = 401}, 1);       // only once
//   server.answer(MetadataServer::kEc2Action, {.manner = Manner::no_answer}, 30s);  // in 30 s
//
// It asks for what the providers ask for: a token on EC2 (401 without; they live as long as was asked for, at
// most), `Metadata-Flavor: Google`, `Metadata: true`.
//
// Errors: the constructor throws IoError when there is no port. Nothing else throws but bad_alloc.
// Threads: all methods from any thread. A thread for each connection answers. Time is the given clock's, but
// what drips or waits does so on the machine's own.
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
#include "holdfast/interruption/cloud_source.h"

namespace holdfast::inline v1 {

enum class Manner {
  normal,
  no_answer,    // takes the request and never says a word
  half_a_body,  // the head and half of the body, and no more
  drip,         // a byte of the body every 50 ms
};

struct ScriptedAnswer {
  int status = 200;
  std::string body = {};
  Manner manner = Manner::normal;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Made anew for each request, instead of `body`: a time that slides.
  std::function<std::string()> make_body = {};
};

struct Interruption {
  Duration in = std::chrono::seconds(120);
  std::string action = "terminate";  // EC2's word: terminate, stop, hibernate
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
  static constexpr std::string_view kAzureEvents = "/metadata/scheduledevents";
  static constexpr std::string_view kAzureName = "/metadata/instance/compute/name";
  static constexpr std::string_view kVirtualMachine = "rehearsal-vm";  // its name on Azure

  // A connection that is silent for `keep_alive` (whole seconds) is ended.
  explicit MetadataServer(Clock& clock = Clock::real(), Duration keep_alive = std::chrono::seconds(5));
  // Ends every connection; waits for a silent one that the other end keeps until `keep_alive` is over.
  ~MetadataServer();
  MetadataServer(const MetadataServer&) = delete;
  MetadataServer& operator=(const MetadataServer&) = delete;

  int port() const;
  std::string host() const;      // "127.0.0.1:41234", for GCE_METADATA_HOST
  std::string endpoint() const;  // "http://127.0.0.1:41234", for the other variables
  // What makes a program that uses our sources, or the provider's own tools, ask this server.
  std::map<std::string, std::string> environment(CloudProvider provider) const;

  // All providers' words for it. A second one replaces the first.
  void announce(const Interruption& interruption);
  void withdraw();
  // EC2's rebalance recommendation.
  void recommend_rebalance();

  // From `after` on (now), until a later one replaces it.
  void answer(std::string_view path, ScriptedAnswer answer, Duration after = Duration::zero());
  // The next `times` requests.
  void next(std::string_view path, const ScriptedAnswer& answer, int times = 1);
  // What the server says by itself again.
  void forget(std::string_view path);

  // EC2: tokens given so far are no longer good.
  void expire_tokens();
  // EC2: false, IMDSv1, wants none. Default true.
  void require_token(bool required);

  std::int64_t requests() const;  // of all kinds, also refused ones
  std::int64_t requests(std::string_view path) const;
  std::int64_t connections() const;  // that made at least one request
  // Azure: events whose start was approved.
  std::vector<std::string> approved() const;
  // Waits on the machine's clock; false: it did not come to that.
  bool wait_for_requests(std::string_view path, std::int64_t count, Duration limit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A port of 127.0.0.1 that neither takes a connection nor refuses one.
class DeafPort {
 public:
  DeafPort();  // IoError
  ~DeafPort();
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  std::string host() const;
  std::string endpoint() const { return "http://" + host(); }

 private:
  std::vector<int> sockets_;  // the listening one, and those that fill its queue
  int port_ = 0;
};

}  // namespace holdfast::inline v1
