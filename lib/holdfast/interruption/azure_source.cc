#include "holdfast/interruption/azure_source.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/azure_words.h"
#include "holdfast/interruption/internal/http_client.h"
#include "holdfast/interruption/internal/json_text.h"
#include "holdfast/interruption/internal/sight.h"
#include "holdfast/interruption/notice_file.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast::inline v1 {
namespace {

using internal::HttpAnswer;
using internal::ScheduledEvent;

constexpr std::string_view kAzureName = "azure";
constexpr Duration kAzureInterval = std::chrono::seconds(2);
constexpr Duration kLeast = std::chrono::seconds(25);
constexpr std::string_view kEvents = "/metadata/scheduledevents?api-version=2020-07-01";
constexpr std::string_view kMachine = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

}  // namespace

class AzureSource::Conversation {
 public:
  Conversation(Clock& clock, AzureOptions options)
      : clock_(clock),
        options_(std::move(options)),
        sight_(clock, "Azure's metadata service"),
        end_(clock, kAzureName, kUnknownNoticeTime) {}

  std::vector<Notice> poll();
  void tell_again() { end_.tell_again(); }
  void cancel() { client_.cancel(); }
  const internal::Sight& sight() const { return sight_; }

 private:
  HttpAnswer ask(std::string_view path, Duration limit, std::string body = {});
  bool know_machine();
  std::optional<std::vector<ScheduledEvent>> events();
  void judge(const std::vector<ScheduledEvent>& events, std::vector<Notice>& news);
  // When it ends the machine, if there is a time to be believed or one that Azure promises.
  std::optional<SteadyTime> end_of(const ScheduledEvent& event);
  void approve(const std::vector<ScheduledEvent>& events);

  Clock& clock_;
  const AzureOptions options_;
  internal::HttpClient client_;
  internal::Sight sight_;
  internal::AnnouncedEnd end_;
  std::string machine_;
  bool answered_ = false;
  std::optional<WallTime> service_now_;
  // When what has begun, or comes at a time that nobody named, was first seen so: by its id and status.
  std::map<std::pair<std::string, std::string>, SteadyTime> soon_;
  std::set<std::string> frozen_;
  std::set<std::string> approved_;
};

HttpAnswer AzureSource::Conversation::ask(std::string_view path, Duration limit, std::string body) {
  internal::HttpRequest request{
      .url = options_.endpoint + std::string(path), .headers = {"Metadata: true"}, .limit = limit};
  if (!body.empty()) {
    request.method = "POST";
    request.headers.emplace_back("Content-Type: application/json");
    request.body = std::move(body);
  }
  HttpAnswer answer = client_.ask(request);
  if (answer.status == 403) {
    sight_.missed("status 403");
    throw Error("Azure's metadata service refuses to answer (403): its events are not heard");
  }
  if (answer.status != 0) answer.failure = "status " + std::to_string(answer.status);
  return answer;
}

bool AzureSource::Conversation::know_machine() {
  if (!machine_.empty()) return true;
  const HttpAnswer answer = ask(kMachine, options_.request_limit);
  if (answer.cancelled) return false;
  if (answer.status == 200 && !answer.body.empty() && answer.body.size() <= 256) {
    machine_ = answer.body;
    return true;
  }
  sight_.missed("the name of this machine is not known (" + answer.failure + ")");
  return false;
}

std::optional<std::vector<ScheduledEvent>> AzureSource::Conversation::events() {
  const HttpAnswer answer = ask(kEvents, answered_ ? options_.request_limit : options_.first_limit);
  if (answer.cancelled) return std::nullopt;
  answered_ = answered_ || answer.status == 200 || answer.status == 404;
  std::optional<std::vector<ScheduledEvent>> found;
  if (answer.status == 200) found = internal::parse_scheduled_events(answer.body, machine_);
  if (answer.status == 404) found.emplace();
  if (!found) {
    sight_.missed(answer.status == 200 ? "its list of events is no such list" : answer.failure);
    return std::nullopt;
  }
  sight_.saw();
  const auto date = answer.header("date");
  service_now_ = date ? parse_service_time(*date) : std::nullopt;
  return found;
}

std::vector<Notice> AzureSource::Conversation::poll() {
  std::vector<Notice> news;
  if (!know_machine()) return news;
  const auto found = events();
  if (!found) return news;
  judge(*found, news);
  if (end_.told() && options_.approve && options_.approve()) approve(*found);
  return news;
}

std::optional<SteadyTime> AzureSource::Conversation::end_of(const ScheduledEvent& event) {
  if (const auto named = internal::believed(event.not_before, clock_, service_now_)) return named;
  if (event.type != "Preempt" && event.status != "Started") return std::nullopt;
  const SteadyTime end = clock_.now() + std::chrono::duration_cast<SteadyTime::duration>(kLeast);
  return soon_.try_emplace({event.id, event.status}, end).first->second;
}

void AzureSource::Conversation::judge(const std::vector<ScheduledEvent>& events, std::vector<Notice>& news) {
  std::vector<internal::ListedEnd> ends;
  std::set<std::string> listed;
  for (const ScheduledEvent& event : events) {
    if (event.status == "Completed" || event.status == "Canceled") continue;
    listed.insert(event.id);
    std::string words = "Azure announces " +
                        internal::shown(event.type.empty() ? "an event" : event.type, 40) +
                        (event.not_before ? " at " + format_utc(*event.not_before) : "");
    if (event.type == "Freeze") {
      if (!frozen_.insert(event.id).second) continue;
      news.push_back({.source = std::string(kAzureName),
                      .kind = NoticeKind::at_risk,
                      .text = std::move(words),
                      .seen = clock_.now()});
      continue;
    }
    ends.push_back({.event = event.id, .when = end_of(event), .text = std::move(words)});
  }
  std::erase_if(frozen_, [&](const std::string& id) { return !listed.contains(id); });
  std::erase_if(soon_, [&](const auto& soon) { return !listed.contains(soon.first.first); });
  if (ends.empty()) {
    end_.nothing("Azure no longer announces an interruption", news);
  } else {
    end_.coming(ends, news);
  }
}

void AzureSource::Conversation::approve(const std::vector<ScheduledEvent>& events) {
  std::vector<std::string> ids;
  for (const ScheduledEvent& event : events) {
    if (event.type == "Freeze" || event.status != "Scheduled" || approved_.contains(event.id)) continue;
    ids.push_back(event.id);
  }
  if (ids.empty()) return;
  const HttpAnswer answer = ask(kEvents, options_.request_limit, internal::start_requests(ids));
  if (answer.status != 200) {
    log_warning("Azure did not take the approval of its event: {}", answer.failure);
    return;
  }
  approved_.insert(ids.begin(), ids.end());
  log_info("Azure was told that the machine may go");
}

AzureSource::AzureSource(Clock& clock, AzureOptions options)
    : conversation_(std::make_unique<Conversation>(clock, std::move(options))) {}

AzureSource::~AzureSource() = default;

std::vector<Notice> AzureSource::poll() {
  try {
    return conversation_->poll();
  } catch (const std::bad_alloc&) {
    conversation_->tell_again();
    throw;
  }
}
Duration AzureSource::interval() const { return conversation_->sight().interval(kAzureInterval); }
void AzureSource::cancel() { conversation_->cancel(); }
SourceFigures AzureSource::figures() const { return conversation_->sight().figures(); }

}  // namespace holdfast::inline v1
