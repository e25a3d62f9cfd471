#include "holdfast/interruption/gcp_source.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/json.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/shown_text.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::HttpAnswer;

// Only for a server that does not wait for the change itself.
constexpr Duration kGcpInterval = std::chrono::seconds(2);
constexpr Duration kAtOnce = std::chrono::milliseconds(1);  // the long poll waits at the server
constexpr Duration kUpcomingInterval = std::chrono::minutes(1);
// Maintenance is announced days ahead; only what comes within minutes is worth a save.
constexpr Duration kGcpNear = std::chrono::minutes(10);
// Google cuts the power 30 s after the signal; the rest is for the process's own exit.
constexpr Duration kNoticeTime = std::chrono::seconds(25);
// A server that ignores wait_for_change answers sooner. Then the source polls at the usual interval.
constexpr Duration kWaited = std::chrono::seconds(1);
constexpr std::size_t kLongestEtag = 100;
constexpr std::string_view kUpcoming = "upcoming-maintenance";

// The etag goes into a URL, so only characters that need no escape pass.
bool may_be_an_etag(std::string_view text) {
  return !text.empty() && text.size() <= kLongestEtag && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

// Google's announcement of planned maintenance.
struct UpcomingMaintenance {
  std::string type;                         // "SCHEDULED", "UNSCHEDULED"
  std::string status;                       // "PENDING", "ONGOING"
  std::string start;                        // as written; distinguishes two events
  std::optional<WallTime> not_before = {};  // unset: missing or unreadable
};

std::string either_member(const JsonValue& json, std::string_view name, std::string_view other_name) {
  // The metadata server and the compute API spell members differently.
  const auto text = text_member(json, name);
  return text ? *text : text_member(json, other_name).value_or("");
}

// nullopt for NONE, {}, {"error": …} and everything else that names neither a start nor a status.
std::optional<UpcomingMaintenance> parse_upcoming_maintenance(std::string_view body) {
  const JsonValue json = parse_json(body);
  UpcomingMaintenance found{.type = either_member(json, "type", "type"),
                            .status = either_member(json, "maintenance_status", "maintenanceStatus"),
                            .start = either_member(json, "window_start_time", "windowStartTime")};
  if (found.status.empty() && found.start.empty()) return std::nullopt;
  found.not_before = parse_service_time(found.start);
  return found;
}

}  // namespace

GcpSource::GcpSource(Clock& clock, GcpOptions options)
    : ServiceSource(clock, "gcp", "Google's metadata server", kNoticeTime, options.blind_after),
      options_(std::move(options)),
      upcoming_again_(clock.now()) {}

Duration GcpSource::interval() const { return sight_.interval(may_wait_ ? kAtOnce : kGcpInterval); }

HttpAnswer GcpSource::ask(std::string_view what, const std::string& parameters, Duration limit) {
  HttpAnswer answer = client_.ask(
      {.url = options_.endpoint + "/computeMetadata/v1/instance/" + std::string(what) + parameters,
       .headers = {"Metadata-Flavor: Google"},
       .limit = limit,
       .most = what == kUpcoming ? internal::kMostList : internal::kMostBody});
  // Google's servers send this header with every answer; a captive portal or proxy does not.
  if (answer.status == 200 && answer.header("metadata-flavor") != "Google") {
    answer.status = 0;
    answer.failure = "an answer that is not Google's";
  } else if (answer.status != 0) {
    answer.failure = "status " + std::to_string(answer.status);
  }
  return answer;
}

std::vector<Notice> GcpSource::look() {
  std::vector<Notice> news;
  may_wait_ = false;
  // The long poll comes last. Google warns of maintenance only if it was asked since the last event, so the
  // others are asked between two waits.
  look_at_maintenance(news);
  look_at_upcoming(news);
  look_at_preempted(news);
  return news;
}

void GcpSource::look_at_preempted(std::vector<Notice>& news) {
  std::string parameters;
  Duration limit = options_.request_limit;
  // A long poll: the server answers at the moment of the change.
  if (!etag_.empty()) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.wait);
    // The server's own limit ends the wait before this client's does.
    parameters =
        "?wait_for_change=true&last_etag=" + etag_ + "&timeout_sec=" + std::to_string(seconds.count());
    limit = seconds + options_.late_answer;
  }
  const SteadyTime begin = clock_.now();
  const HttpAnswer answer = ask("preempted", parameters, limit);
  if (answer.cancelled) return;
  const std::string_view value = internal::trimmed(answer.body);
  const bool preempted = answer.status == 200 && value == "TRUE";
  if (!preempted && (answer.status != 200 || value != "FALSE")) {
    // Without an etag the next request returns at once: a failure must not cost a long wait.
    etag_.clear();
    miss(answer);
    return;
  }
  sight_.saw();
  const bool first = etag_.empty();
  // Without a usable etag the next poll asks without waiting.
  const auto etag = answer.header("etag");
  etag_ = etag && may_be_an_etag(*etag) ? std::string(*etag) : "";
  // The first request has no etag and cannot wait. From then on the time that it took shows whether the
  // server waits.
  may_wait_ = !etag_.empty() && (first || clock_.now() - begin >= kWaited);
  if (preempted) {
    end_.coming({{.text = "Google preempts this machine"}}, news);
  } else {
    end_.nothing("Google no longer preempts this machine", news);
  }
}

void GcpSource::miss(const HttpAnswer& answer) {
  if (answer.status == internal::kRefused) {
    sight_.refused("it refuses to answer (403); a proxy or a rule of this network blocks it");
  } else if (answer.status == 404) {
    sight_.missed(
        "it does not know whether this machine is preempted (404; GKE's own metadata server stands before "
        "it: "
        "give the pod hostNetwork: true)");
  } else {
    sight_.missed(answer.status == 200 ? "neither TRUE nor FALSE" : answer.failure);
  }
}

// A failure here does not make the source blind: only `preempted` decides that.
std::optional<std::string> GcpSource::beside(std::string_view what, const std::string& parameters) {
  if (refusals_.rests(what)) return std::nullopt;
  HttpAnswer answer = ask(what, parameters, options_.request_limit);
  if (answer.status == internal::kRefused) refusals_.refused(what);
  if (answer.too_long) refusals_.too_long(what, answer.failure);
  if (answer.status != 200) return std::nullopt;
  return std::move(answer.body);
}

void GcpSource::look_at_upcoming(std::vector<Notice>& news) {
  const SteadyTime now = clock_.now();
  if (now < upcoming_again_) return;
  // Once a minute: maintenance is announced hours ahead.
  upcoming_again_ = now + std::chrono::duration_cast<SteadyTime::duration>(kUpcomingInterval);
  const auto body = beside(kUpcoming, "?alt=json");
  if (!body) return;
  const auto event = parse_upcoming_maintenance(*body);
  if (!event) {
    told_upcoming_.reset();
    logged_upcoming_.reset();
    return;
  }
  const std::string text = "Google has planned maintenance (" +
                           internal::shown(event->type.empty() ? event->status : event->type, 40) + ")" +
                           (event->not_before ? " at " + format_utc(*event->not_before) : "");
  // An event without a time may begin at any moment.
  const bool near =
      !event->not_before || *event->not_before - clock_.wall_now() <= kGcpNear || event->status == "ONGOING";
  if (near) {
    if (std::exchange(told_upcoming_, event->start) != event->start) at_risk(news, text);
  } else if (std::exchange(logged_upcoming_, event->start) != event->start) {
    log_info("{}", text);
  }
}

void GcpSource::look_at_maintenance(std::vector<Notice>& news) {
  const auto body = beside("maintenance-event", "");
  if (!body) return;
  std::string value = internal::shown(internal::trimmed(*body), 60);
  // The value stays for the whole maintenance; only its change is news.
  if (std::exchange(maintenance_, value) == value || value == "NONE") return;
  // A risk and no end, because Google names no moment and sends a SIGTERM. A live migration loses nothing.
  if (value.starts_with("TERMINATE")) {
    at_risk(news, "Google announces maintenance: " + value);
  } else {
    log_info("Google announces maintenance: {}", value);
  }
}

}}  // namespace holdfast::v0_2
