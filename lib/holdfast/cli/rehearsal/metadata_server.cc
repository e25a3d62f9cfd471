#include "holdfast/cli/rehearsal/metadata_server.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDrip = 50ms;

// One thread per request, so that a request that hangs does not delay others.
class ThreadEach final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> work) override { threads_.emplace_back(std::move(work)); }
  void shutdown() override {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::vector<std::thread> threads_;
};

ScriptedAnswer text(std::string body) {
  return {.body = std::move(body), .headers = {{"Content-Type", "text/plain"}}};
}
ScriptedAnswer json(const nlohmann::json& value) {
  return {.body = value.dump(), .headers = {{"Content-Type", "application/json"}}};
}

}  // namespace

struct MetadataServer::State {
  explicit State(Clock& a_clock) : clock(a_clock), started(clock.now()) {}

  void handle(const httplib::Request& request, httplib::Response& response) HOLDFAST_EXCLUDES(mutex);
  ScriptedAnswer ec2(const httplib::Request& request, const std::string& path) HOLDFAST_REQUIRES(mutex);
  ScriptedAnswer gcp(const httplib::Request& request, const std::string& path) HOLDFAST_REQUIRES(mutex);
  ScriptedAnswer azure(const httplib::Request& request, const std::string& path) HOLDFAST_REQUIRES(mutex);
  std::optional<ScriptedAnswer> scripted(const std::string& path) HOLDFAST_REQUIRES(mutex);
  bool has_token(const httplib::Request& request) const HOLDFAST_REQUIRES(mutex);
  void give(ScriptedAnswer answer, httplib::Response& response) HOLDFAST_EXCLUDES(mutex);
  void give_slowly(const ScriptedAnswer& answer, const std::string& type, httplib::Response& response);
  // False if the server ends meanwhile.
  bool pause(std::optional<Duration> limit) HOLDFAST_EXCLUDES(mutex);

  Clock& clock;
  const SteadyTime started;
  httplib::Server server;
  std::thread thread;
  std::atomic<bool> ended = false;  // the thread listens no more: an error of accept() ends it, too
  int port = 0;

  mutable Mutex mutex;
  CondVar changed;
  bool ending HOLDFAST_GUARDED_BY(mutex) = false;
  std::map<std::string, std::map<Duration, ScriptedAnswer>, std::less<>> script HOLDFAST_GUARDED_BY(mutex);
  std::map<std::string, std::deque<ScriptedAnswer>, std::less<>> once HOLDFAST_GUARDED_BY(mutex);
  std::map<std::string, SteadyTime> tokens HOLDFAST_GUARDED_BY(mutex);  // value: when the token expires
  int tokens_made HOLDFAST_GUARDED_BY(mutex) = 0;
  bool token_required HOLDFAST_GUARDED_BY(mutex) = true;
  struct Announced {
    WallTime when;
    std::string action;
  };
  std::optional<Announced> announced HOLDFAST_GUARDED_BY(mutex);
  std::optional<WallTime> rebalance HOLDFAST_GUARDED_BY(mutex);
  int serial HOLDFAST_GUARDED_BY(mutex) = 0;  // counts announcements and withdrawals
  std::map<std::string, std::int64_t, std::less<>> counts HOLDFAST_GUARDED_BY(mutex);
  std::int64_t all HOLDFAST_GUARDED_BY(mutex) = 0;
  std::set<int> client_ports HOLDFAST_GUARDED_BY(mutex);
  std::vector<std::string> approved HOLDFAST_GUARDED_BY(mutex);
};

MetadataServer::MetadataServer(Clock& clock, Duration keep_alive) : state_(std::make_unique<State>(clock)) {
  httplib::Server& server = state_->server;
  server.new_task_queue = [] { return new ThreadEach; };  // httplib owns it
  server.set_tcp_nodelay(true);
  // The library's default ends a connection after a few requests, which no real service does.
  server.set_keep_alive_max_count(1'000'000);
  server.set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(keep_alive).count());
  const auto handler = [state = state_.get()](const httplib::Request& request, httplib::Response& response) {
    state->handle(request, response);
  };
  server.Get(".*", handler);
  server.Put(".*", handler);
  server.Post(".*", handler);
  state_->port = server.bind_to_any_port("127.0.0.1");
  if (state_->port <= 0) throw IoError("bind", "127.0.0.1", errno, "is the loopback interface up?");
  state_->thread = std::thread([state = state_.get()] {
    state->server.listen_after_bind();
    state->ended = true;
  });
}

MetadataServer::~MetadataServer() {
  {
    const MutexLock lock(state_->mutex);
    // First, because the server's end joins the threads of all requests, and some may wait in pause().
    state_->ending = true;
  }
  state_->changed.notify_all();
  // stop() has no effect on a server that does not listen yet.
  while (!state_->server.is_running() && !state_->ended) std::this_thread::sleep_for(1ms);
  state_->server.stop();
  state_->thread.join();
}

int MetadataServer::port() const { return state_->port; }
std::string MetadataServer::host() const { return "127.0.0.1:" + std::to_string(port()); }
std::string MetadataServer::endpoint() const { return "http://" + host(); }

std::map<std::string, std::string> MetadataServer::environment(std::string_view provider) const {
  const CloudProvider& row = *find_provider(provider);
  return {{row.address.name, row.address_is_host ? host() : endpoint()}};
}

void MetadataServer::announce(const Interruption& interruption) {
  {
    const MutexLock lock(state_->mutex);
    const auto when = state_->clock.wall_now() + interruption.in;
    state_->announced = {std::chrono::time_point_cast<WallTime::duration>(when), interruption.action};
    ++state_->serial;
  }
  state_->changed.notify_all();
}

void MetadataServer::withdraw() {
  {
    const MutexLock lock(state_->mutex);
    state_->announced.reset();
    ++state_->serial;
  }
  state_->changed.notify_all();
}

void MetadataServer::recommend_rebalance() {
  const MutexLock lock(state_->mutex);
  state_->rebalance = state_->clock.wall_now();
}

void MetadataServer::answer(std::string_view path, ScriptedAnswer answer, Duration after) {
  {
    const MutexLock lock(state_->mutex);
    const Duration from = state_->clock.now() - state_->started + after;
    state_->script[std::string(path)].insert_or_assign(from, std::move(answer));
  }
  state_->changed.notify_all();
}

void MetadataServer::next(std::string_view path, const ScriptedAnswer& answer, int times) {
  {
    const MutexLock lock(state_->mutex);
    auto& queue = state_->once[std::string(path)];
    queue.insert(queue.end(), static_cast<std::size_t>(times), answer);
  }
  state_->changed.notify_all();
}

void MetadataServer::forget(std::string_view path) {
  const MutexLock lock(state_->mutex);
  state_->script.erase(std::string(path));
  state_->once.erase(std::string(path));
}

void MetadataServer::expire_tokens() {
  const MutexLock lock(state_->mutex);
  state_->tokens.clear();
}

void MetadataServer::require_token(bool required) {
  const MutexLock lock(state_->mutex);
  state_->token_required = required;
}

std::int64_t MetadataServer::requests() const {
  const MutexLock lock(state_->mutex);
  return state_->all;
}

std::int64_t MetadataServer::requests(std::string_view path) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->counts.find(path);
  return found == state_->counts.end() ? 0 : found->second;
}

std::int64_t MetadataServer::connections() const {
  const MutexLock lock(state_->mutex);
  return static_cast<std::int64_t>(state_->client_ports.size());
}

std::vector<std::string> MetadataServer::approved() const {
  const MutexLock lock(state_->mutex);
  return state_->approved;
}

void MetadataServer::State::handle(const httplib::Request& request, httplib::Response& response) {
  std::string path = request.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  MutexLock lock(mutex);
  ++all;
  ++counts[path];
  // httplib shows requests, not connections. On the loopback interface each connection has a client port of
  // its own.
  client_ports.insert(request.remote_port);
  ScriptedAnswer answer{.status = 404};
  if (auto said = scripted(path)) {
    answer = std::move(*said);
    // The real service wants a token for each of these paths.
    const bool wants_token = path.starts_with("/latest/meta-data/") && answer.status == 200;
    if (wants_token && !has_token(request)) answer = {.status = 401};
  } else if (path.starts_with("/latest/")) {
    answer = ec2(request, path);
  } else if (path.starts_with("/computeMetadata/")) {
    answer = gcp(request, path);
  } else if (path.starts_with("/metadata/")) {
    answer = azure(request, path);
  }
  // An answer may hang until the server ends, and the others must go on meanwhile.
  lock.unlock();
  give(std::move(answer), response);
}

std::optional<ScriptedAnswer> MetadataServer::State::scripted(const std::string& path) {
  if (const auto queue = once.find(path); queue != once.end() && !queue->second.empty()) {
    ScriptedAnswer answer = std::move(queue->second.front());
    queue->second.pop_front();
    return answer;
  }
  const auto found = script.find(path);
  if (found == script.end()) return std::nullopt;
  const auto later = found->second.upper_bound(clock.now() - started);
  if (later == found->second.begin()) return std::nullopt;
  return std::prev(later)->second;
}

bool MetadataServer::State::has_token(const httplib::Request& request) const {
  if (!token_required) return true;
  const auto found = tokens.find(request.get_header_value("X-aws-ec2-metadata-token"));
  return found != tokens.end() && clock.now() < found->second;
}

ScriptedAnswer MetadataServer::State::ec2(const httplib::Request& request, const std::string& path) {
  if (path == kEc2Token) {
    if (request.method != "PUT") return {.status = 405};
    const auto seconds = parse_int(request.get_header_value("X-aws-ec2-metadata-token-ttl-seconds"));
    // The limits of the real service: 1 s to 6 h.
    if (!seconds || *seconds < 1 || *seconds > 21600) return {.status = 400};
    std::string token = "token-" + std::to_string(++tokens_made);
    tokens[token] = clock.now() + std::chrono::seconds(*seconds);
    ScriptedAnswer answer = text(token);
    answer.headers.emplace_back("X-aws-ec2-metadata-token-ttl-seconds", std::to_string(*seconds));
    return answer;
  }
  if (!has_token(request)) return {.status = 401};
  if (path == kEc2Action && announced) {
    return json({{"action", announced->action}, {"time", format_utc(announced->when)}});
  }
  // EC2 has this older path for terminations only, not for stops and hibernation.
  if (path == kEc2Termination && announced && announced->action == "terminate") {
    return text(format_utc(announced->when));
  }
  if (path == kEc2Rebalance && rebalance) return json({{"noticeTime", format_utc(*rebalance)}});
  // EC2's answer while nothing is announced.
  return {.status = 404};
}

ScriptedAnswer MetadataServer::State::gcp(const httplib::Request& request, const std::string& path) {
  // The real service refuses requests that lack this header.
  if (request.get_header_value("Metadata-Flavor") != "Google") return {.status = 403};
  if (path != kGcpPreempted && path != kGcpMaintenance) return {.status = 404};
  const auto etag = [&]() HOLDFAST_REQUIRES(mutex) {
    // No maintenance is ever announced here, so a wait for it ends only at its own limit.
    return path == kGcpPreempted ? "e" + std::to_string(serial) : std::string("e");
  };
  if (request.get_param_value("wait_for_change") == "true") {
    // Without a state that it knows, a client waits for the next change.
    const auto known = request.has_param("last_etag") ? request.get_param_value("last_etag") : etag();
    const auto limit = parse_int(request.get_param_value("timeout_sec")).value_or(3600);
    const auto scripted_now = [&]() HOLDFAST_REQUIRES(mutex) {
      const auto queue = once.find(path);
      return script.contains(path) || (queue != once.end() && !queue->second.empty());
    };
    changed.wait_for(mutex, std::chrono::seconds(limit),
                     [&]() HOLDFAST_REQUIRES(mutex) { return ending || etag() != known || scripted_now(); });
    // handle() looked before the wait, and the script may have come since.
    if (auto said = scripted(path)) return *said;
  }
  const bool preempted = path == kGcpPreempted && announced;
  ScriptedAnswer answer = text(path == kGcpMaintenance ? "NONE" : preempted ? "TRUE" : "FALSE");
  answer.headers.emplace_back("Metadata-Flavor", "Google");
  answer.headers.emplace_back("ETag", etag());
  return answer;
}

ScriptedAnswer MetadataServer::State::azure(const httplib::Request& request, const std::string& path) {
  // The real service refuses requests that lack either.
  if (request.get_header_value("Metadata") != "true" || !request.has_param("api-version")) {
    return {.status = 400};
  }
  if (path == kAzureName) return text(std::string(kVirtualMachine));
  if (path != kAzureEvents) return {.status = 404};
  const std::string id = "event-" + std::to_string(serial);
  if (request.method == "POST") {
    const auto body = nlohmann::json::parse(request.body, nullptr, false);
    if (!body.is_object() || !body.value("StartRequests", nlohmann::json()).is_array()) {
      return {.status = 400};
    }
    for (const auto& start : body["StartRequests"]) approved.push_back(start.value("EventId", ""));
    return {};
  }
  nlohmann::json events = nlohmann::json::array();
  if (announced) {
    events.push_back({{"EventId", id},
                      {"EventStatus", "Scheduled"},
                      {"EventType", "Preempt"},
                      {"ResourceType", "VirtualMachine"},
                      {"Resources", {kVirtualMachine}},
                      {"NotBefore", format_http_date(announced->when)},
                      {"Description", ""},
                      {"EventSource", "Platform"},
                      // Azure's word for an unknown duration.
                      {"DurationInSeconds", -1}});
  }
  // Azure counts the incarnation up with every change of the events.
  return json({{"DocumentIncarnation", serial}, {"Events", std::move(events)}});
}

void MetadataServer::State::give(ScriptedAnswer answer, httplib::Response& response) {
  if (answer.make_body) answer.body = answer.make_body();
  std::string type = "text/plain";
  for (const auto& [name, value] : answer.headers) {
    if (name == "Content-Type") {
      // httplib takes this one as an argument of set_content().
      type = value;
    } else {
      response.set_header(name, value);
    }
  }
  response.status = answer.status;
  if (answer.manner == Manner::normal) {
    response.set_content(answer.body, type);
  } else if (answer.manner == Manner::no_answer) {
    pause(std::nullopt);
  } else {
    give_slowly(answer, type, response);
  }
}

void MetadataServer::State::give_slowly(const ScriptedAnswer& answer, const std::string& type,
                                        httplib::Response& response) {
  const bool drips = answer.manner == Manner::drip;
  response.set_content_provider(
      answer.body.size(), type,
      [this, drips, body = answer.body](std::size_t offset, std::size_t, httplib::DataSink& sink) {
        // Without dripping: half of the body, and then nothing.
        const std::size_t end = drips ? body.size() : body.size() / 2;
        if (offset >= end) {
          pause(std::nullopt);
          return false;
        }
        const std::size_t count = drips ? 1 : end - offset;
        return sink.write(body.data() + offset, count) && (!drips || pause(kDrip));
      });
}

bool MetadataServer::State::pause(std::optional<Duration> limit) {
  const MutexLock lock(mutex);
  if (!limit) {
    changed.wait(mutex, [this]() HOLDFAST_REQUIRES(mutex) { return ending; });
    return false;
  }
  return !changed.wait_for(mutex, *limit, [this]() HOLDFAST_REQUIRES(mutex) { return ending; });
}

std::string_view http_library_version() { return CPPHTTPLIB_VERSION; }

}}  // namespace holdfast::v0_2
