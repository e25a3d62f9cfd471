#include "holdfast/interruption/azure_source.h"

#include <algorithm>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/shown_text.h"
#include "holdfast/interruption/notice_file.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::HttpAnswer;
using internal::ScheduledEvent;

constexpr std::string_view kAzureName = "azure";
// A Preempt leaves 30 s, so a notice must not wait longer than this for a poll.
constexpr Duration kAzureInterval = std::chrono::seconds(2);
// Azure promises 30 s for a Preempt; the rest is for the process's own exit.
constexpr Duration kLeast = std::chrono::seconds(25);
constexpr Duration kLongestFreeze = std::chrono::seconds(30);  // Azure pauses a machine for at most this
constexpr std::string_view kEvents = "/metadata/scheduledevents?api-version=2020-07-01";
constexpr std::string_view kApproval = "StartRequests";
constexpr std::string_view kMachine = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

}  // namespace

AzureSource::AzureSource(Clock& clock, AzureOptions options)
    : ServiceSource(clock, kAzureName, "Azure's metadata service", kUnknownNoticeTime, options.blind_after),
      options_(std::move(options)) {}

Duration AzureSource::interval() const { return sight_.interval(kAzureInterval); }

HttpAnswer AzureSource::ask(std::string_view path, Duration limit, std::string body) {
  // The service refuses requests without this header, so that no web page can ask on somebody's behalf.
  internal::HttpRequest request{
      .url = options_.endpoint + std::string(path), .headers = {"Metadata: true"}, .limit = limit};
  if (path == kEvents) request.most = internal::kMostList;
  if (!body.empty()) {
    request.method = "POST";
    request.headers.emplace_back("Content-Type: application/json");
    request.body = std::move(body);
  }
  HttpAnswer answer = client_.ask(request);
  // A status is no failure of the transport, but a caller that wants 200 has failed.
  if (answer.status != 0) answer.failure = "status " + std::to_string(answer.status);
  return answer;
}

void AzureSource::miss(const HttpAnswer& answer, const std::string& why) {
  if (answer.status == internal::kRefused) {
    sight_.refused("it refuses to answer (403); a rule of this network or machine blocks it");
  } else {
    sight_.missed(why);
  }
}

bool AzureSource::know_machine() {
  // Events name machines, and one answer lists those of a whole scale set.
  if (!machine_.empty()) return true;
  const HttpAnswer answer = ask(kMachine, options_.request_limit);
  if (answer.cancelled) return false;
  if (answer.status == 200 && !answer.body.empty() && answer.body.size() <= 256) {
    machine_ = answer.body;
    return true;
  }
  miss(answer, "the name of this machine is not known (" + answer.failure + ")");
  return false;
}

std::optional<std::vector<ScheduledEvent>> AzureSource::events() {
  // The first request switches the service on for this machine, so it gets more time.
  const HttpAnswer answer = ask(kEvents, answered_ ? options_.request_limit : options_.first_limit);
  if (answer.cancelled) return std::nullopt;
  answered_ = answered_ || answer.status == 200 || answer.status == 404;
  std::optional<std::vector<ScheduledEvent>> found;
  if (answer.status == 200) found = internal::parse_scheduled_events(answer.body, machine_);
  // A 404 is an answer too: nothing is announced.
  if (answer.status == 404) found.emplace();
  if (!found) {
    miss(answer, answer.status == 200 ? "its list of events is malformed" : answer.failure);
    return std::nullopt;
  }
  sight_.saw();
  // The service's own clock, because this machine's may be wrong (believed()).
  const auto date = answer.header("date");
  service_now_ = date ? parse_service_time(*date) : std::nullopt;
  return found;
}

std::vector<Notice> AzureSource::look() {
  std::vector<Notice> news;
  if (!know_machine()) return news;
  const auto found = events();
  if (!found) return news;
  judge(*found, news);
  // Approval makes Azure act at once, so only after the caller has nothing left to save.
  if (end_.told() && options_.approve && options_.approve()) approve(*found);
  return news;
}

std::optional<SteadyTime> AzureSource::end_of(const ScheduledEvent& event) {
  if (const auto named = internal::believed(event.not_before, clock_, service_now_)) return named;
  if (event.type != "Preempt" && event.status != "Started") return std::nullopt;
  // A Preempt without a time, or an event that has begun: Azure's own promise counts from the first sight.
  const SteadyTime end = clock_.now() + std::chrono::duration_cast<SteadyTime::duration>(kLeast);
  return soon_.try_emplace({event.id, event.status}, end).first->second;
}

void AzureSource::judge(const std::vector<ScheduledEvent>& events, std::vector<Notice>& news) {
  std::vector<internal::ListedEnd> ends;
  std::set<std::string> listed;
  for (const ScheduledEvent& event : events) {
    // Such an event stays in the list for a while after it is over.
    if (event.status == "Completed" || event.status == "Canceled") continue;
    listed.insert(event.id);
    std::string words = "Azure announces " +
                        internal::shown(event.type.empty() ? "an event" : event.type, 40) +
                        (event.not_before ? " at " + format_utc(*event.not_before) : "");
    if (event.type == "Freeze") {
      // A freeze pauses the machine and destroys nothing, so it is a risk and no end.
      if (!frozen_.insert(event.id).second) continue;
      news.push_back({.source = std::string(kAzureName),
                      .kind = NoticeKind::at_risk,
                      .text = std::move(words),
                      .stands_still = kLongestFreeze,
                      .seen = clock_.now()});
      continue;
    }
    ends.push_back({.event = event.id, .when = end_of(event), .text = std::move(words)});
  }
  const auto over = std::erase_if(frozen_, [&](const std::string& id) { return !listed.contains(id); });
  // Only after the last one: while another freeze is listed, the ranks must still expect silence.
  if (over > 0 && frozen_.empty()) {
    news.push_back({.source = std::string(kAzureName),
                    .kind = NoticeKind::thawed,
                    .text = "Azure freezes this machine no more",
                    .seen = clock_.now()});
  }
  // An event that is listed again later begins a new promise.
  std::erase_if(soon_, [&](const auto& soon) { return !listed.contains(soon.first.first); });
  if (ends.empty()) {
    end_.nothing("Azure no longer announces an interruption", news);
  } else {
    end_.coming(ends, news);
  }
}

void AzureSource::approve(const std::vector<ScheduledEvent>& events) {
  std::vector<std::string> ids;
  for (const ScheduledEvent& event : events) {
    // Only a scheduled event waits for approval.
    if (event.type == "Freeze" || event.status != "Scheduled" || approved_.contains(event.id)) continue;
    ids.push_back(event.id);
  }
  if (ids.empty() || refusals_.rests(kApproval)) return;
  const HttpAnswer answer = ask(kEvents, options_.request_limit, internal::start_requests(ids));
  if (answer.status == internal::kRefused) refusals_.refused(kApproval);
  // Other refusals are repeated at the next poll, because the event stays in the list.
  if (answer.status != 200) {
    log_warning("Azure did not take the approval of its event: {}", answer.failure);
    return;
  }
  approved_.insert(ids.begin(), ids.end());
  log_info("Azure was told that the machine may go");
}

}}  // namespace holdfast::v0_2
