#include "holdfast/interruption/gcp_source.h"

#include <algorithm>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/http_client.h"
#include "holdfast/interruption/internal/json_text.h"
#include "holdfast/interruption/internal/sight.h"

namespace holdfast::inline v1 {
namespace {

using internal::HttpAnswer;

constexpr std::string_view kGcpName = "gcp";
constexpr Duration kGcpInterval = std::chrono::seconds(2);
constexpr Duration kAtOnce = std::chrono::milliseconds(1);
constexpr Duration kNoticeTime = std::chrono::seconds(25);
// A server that ignores the wish to wait answers sooner, and is asked no more often than others.
constexpr Duration kWaited = std::chrono::seconds(1);
constexpr std::size_t kLongestEtag = 100;

bool may_be_an_etag(std::string_view text) {
  return !text.empty() && text.size() <= kLongestEtag && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

std::string_view trimmed(std::string_view text) {
  const auto end = text.find_last_not_of(" \t\r\n");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
}

}  // namespace

class GcpSource::Conversation {
 public:
  Conversation(Clock& clock, GcpOptions options)
      : clock_(clock),
        options_(std::move(options)),
        sight_(clock, "Google's metadata server"),
        end_(clock, kGcpName, kNoticeTime) {}

  std::vector<Notice> poll();
  void tell_again() { end_.tell_again(); }
  void cancel() { client_.cancel(); }
  Duration interval() const { return sight_.interval(may_wait_ ? kAtOnce : kGcpInterval); }
  SourceFigures figures() const { return sight_.figures(); }

 private:
  HttpAnswer ask(std::string_view what, const std::string& parameters, Duration limit);
  void look_at_preempted(std::vector<Notice>& news);
  void look_at_maintenance(std::vector<Notice>& news);

  Clock& clock_;
  const GcpOptions options_;
  internal::HttpClient client_;
  internal::Sight sight_;
  internal::AnnouncedEnd end_;
  std::string etag_;  // of `preempted`, as last seen
  std::string maintenance_;
  bool may_wait_ = false;  // at the next request
};

HttpAnswer GcpSource::Conversation::ask(std::string_view what, const std::string& parameters,
                                        Duration limit) {
  HttpAnswer answer = client_.ask(
      {.url = options_.endpoint + "/computeMetadata/v1/instance/" + std::string(what) + parameters,
       .headers = {"Metadata-Flavor: Google"},
       .limit = limit});
  if (answer.status == 403) {
    sight_.missed("status 403");
    throw Error("Google's metadata server refuses to answer (403): its notices are not heard");
  }
  if (answer.status == 200 && answer.header("metadata-flavor") != "Google") {
    answer.status = 0;
    answer.failure = "an answer that is not Google's";
  } else if (answer.status != 0) {
    answer.failure = "status " + std::to_string(answer.status);
  }
  return answer;
}

std::vector<Notice> GcpSource::Conversation::poll() {
  std::vector<Notice> news;
  may_wait_ = false;
  look_at_maintenance(news);
  look_at_preempted(news);
  return news;
}

void GcpSource::Conversation::look_at_preempted(std::vector<Notice>& news) {
  std::string parameters;
  Duration limit = options_.request_limit;
  if (!etag_.empty()) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.wait);
    parameters =
        "?wait_for_change=true&last_etag=" + etag_ + "&timeout_sec=" + std::to_string(seconds.count());
    limit = seconds + options_.late_answer;
  }
  const SteadyTime begin = clock_.now();
  const HttpAnswer answer = ask("preempted", parameters, limit);
  if (answer.cancelled) return;
  const std::string_view value = trimmed(answer.body);
  const bool preempted = answer.status == 200 && value == "TRUE";
  if (answer.status != 404 && !preempted && (answer.status != 200 || value != "FALSE")) {
    etag_.clear();
    sight_.missed(answer.status == 200 ? "neither TRUE nor FALSE" : answer.failure);
    return;
  }
  sight_.saw();
  const bool first = etag_.empty();
  const auto etag = answer.header("etag");
  etag_ = etag && may_be_an_etag(*etag) ? std::string(*etag) : "";
  may_wait_ = !etag_.empty() && (first || clock_.now() - begin >= kWaited);
  if (preempted) {
    end_.coming({{.text = "Google preempts this machine"}}, news);
  } else {
    end_.nothing("Google no longer preempts this machine", news);
  }
}

// Its failures say nothing about the value that counts.
void GcpSource::Conversation::look_at_maintenance(std::vector<Notice>& news) {
  const HttpAnswer answer = ask("maintenance-event", "", options_.request_limit);
  if (answer.status != 200) return;
  std::string value = internal::shown(trimmed(answer.body), 60);
  if (std::exchange(maintenance_, value) == value || value == "NONE") return;
  if (value.starts_with("TERMINATE")) {
    news.push_back({.source = std::string(kGcpName),
                    .kind = NoticeKind::at_risk,
                    .text = "Google announces maintenance: " + value,
                    .seen = clock_.now()});
  } else {
    log_info("Google announces maintenance: {}", value);
  }
}

GcpSource::GcpSource(Clock& clock, GcpOptions options)
    : conversation_(std::make_unique<Conversation>(clock, std::move(options))) {}

GcpSource::~GcpSource() = default;

std::vector<Notice> GcpSource::poll() {
  try {
    return conversation_->poll();
  } catch (const std::bad_alloc&) {
    conversation_->tell_again();
    throw;
  }
}
Duration GcpSource::interval() const { return conversation_->interval(); }
void GcpSource::cancel() { conversation_->cancel(); }
SourceFigures GcpSource::figures() const { return conversation_->figures(); }

}  // namespace holdfast::inline v1
