#include "holdfast/interruption/ec2_source.h"

#include <array>
#include <new>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/ec2_session.h"
#include "holdfast/interruption/internal/ec2_words.h"
#include "holdfast/interruption/internal/json_text.h"
#include "holdfast/interruption/internal/sight.h"
#include "holdfast/interruption/notice_file.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast::inline v1 {
namespace {

using internal::Ec2Reading;
using Kind = Ec2Reading::Kind;

constexpr std::string_view kEc2Name = "ec2";
constexpr Duration kEc2Interval = std::chrono::seconds(2);
constexpr Duration kNear = std::chrono::minutes(10);

constexpr std::string_view kAction = "spot/instance-action";
constexpr std::string_view kTermination = "spot/termination-time";
constexpr std::string_view kRebalance = "events/recommendations/rebalance";
constexpr std::string_view kLifecycle = "autoscaling/target-lifecycle-state";
constexpr std::string_view kMaintenance = "events/maintenance/scheduled";
constexpr std::array kTurns{kTermination, kRebalance, kLifecycle, kMaintenance};

std::string when_words(std::optional<WallTime> time) { return time ? " at " + format_utc(*time) : ""; }

}  // namespace

class Ec2Source::Conversation {
 public:
  Conversation(Clock& clock, Ec2Options options)
      : clock_(clock),
        session_(clock, std::move(options.endpoint), options.request_limit),
        sight_(clock, "EC2's metadata service"),
        end_(clock, kEc2Name, kUnknownNoticeTime) {}

  std::vector<Notice> poll();
  void tell_again() { end_.tell_again(); }
  internal::Ec2Session& session() { return session_; }
  const internal::Sight& sight() const { return sight_; }

 private:
  void look_at_action(std::vector<Notice>& news);
  // Nothing: not known.
  std::optional<bool> look_at_termination(std::vector<Notice>& news);
  void look_at(std::string_view path, std::vector<Notice>& news);
  void look_at_maintenance(const std::string& body, std::vector<Notice>& news);
  void at_risk(std::vector<Notice>& news, std::string text);

  Clock& clock_;
  internal::Ec2Session session_;
  internal::Sight sight_;
  internal::AnnouncedEnd end_;
  std::size_t turn_ = 0;
  bool first_ = true;
  bool rebalanced_ = false;
  bool ending_group_ = false;
  std::set<std::string> told_events_;  // at_risk was told
  std::set<std::string> logged_events_;
};

std::vector<Notice> Ec2Source::Conversation::poll() {
  std::vector<Notice> news;
  look_at_action(news);
  // Each may cost a second; while the first one fails, so do the others.
  if (sight_.failing()) return news;
  if (std::exchange(first_, false)) {
    for (const std::string_view path : kTurns) look_at(path, news);
  } else {
    look_at(kTurns[turn_++ % kTurns.size()], news);
  }
  return news;
}

void Ec2Source::Conversation::look_at_action(std::vector<Notice>& news) {
  const Ec2Reading reading = session_.get(kAction);
  if (reading.kind == Kind::cancelled) return;
  if (reading.kind == Kind::refused) {
    sight_.missed("status 403");
    throw Error(
        "EC2's metadata service refuses to answer (403; it is switched off for this instance or blocked by a "
        "rule): its notices are not heard. Switch it on with aws ec2 modify-instance-metadata-options "
        "--http-endpoint enabled");
  }
  if (reading.kind == Kind::body) {
    if (const auto action = internal::parse_instance_action(reading.body)) {
      sight_.saw();
      const std::string word = action->action.empty() ? "no action" : internal::shown(action->action, 40);
      std::string text = "EC2 announces " + word + when_words(action->time);
      const auto end = internal::believed(action->time, clock_, reading.service_now);
      end_.coming({{.when = end, .hibernates = action->action == "hibernate", .text = std::move(text)}},
                  news);
      return;
    }
    // Something was announced, in words that nobody understands: the older form may be readable.
    sight_.missed("what it says about the instance's action is no JSON object");
    look_at_termination(news);
    return;
  }
  if (reading.kind == Kind::unknown) {
    sight_.missed(reading.failure);
    return;
  }
  sight_.saw();
  if (!end_.told() || look_at_termination(news) != std::optional(false)) return;
  end_.nothing("EC2 no longer announces an interruption", news);
}

std::optional<bool> Ec2Source::Conversation::look_at_termination(std::vector<Notice>& news) {
  const Ec2Reading reading = session_.get(kTermination);
  if (reading.kind == Kind::nothing) return false;
  if (reading.kind != Kind::body) return std::nullopt;
  // "May be present but hold a value that is not a time": then nothing is coming.
  const auto time = parse_service_time(reading.body);
  if (!time) return false;
  const auto end = internal::believed(time, clock_, reading.service_now);
  end_.coming({{.when = end, .text = "EC2 announces its termination" + when_words(time)}}, news);
  return true;
}

// Its failures say nothing about the announcement that counts.
void Ec2Source::Conversation::look_at(std::string_view path, std::vector<Notice>& news) {
  if (path == kTermination) {
    look_at_termination(news);
    return;
  }
  const Ec2Reading reading = session_.get(path);
  if (reading.kind == Kind::unknown) log_debug("{}", reading.failure);
  if (reading.kind != Kind::body && reading.kind != Kind::nothing) return;
  const bool there = reading.kind == Kind::body;
  if (path == kRebalance) {
    const bool rebalance = there && internal::is_json_object(reading.body);
    if (rebalance && !std::exchange(rebalanced_, true)) at_risk(news, "EC2 recommends to rebalance");
    if (!there) rebalanced_ = false;
  } else if (path == kLifecycle) {
    const bool ending = there && reading.body == "Terminated";
    if (ending && !std::exchange(ending_group_, true) && !end_.told()) {
      at_risk(news, "EC2's scaling group is about to terminate this instance");
    }
    if (!ending) ending_group_ = false;
  } else if (there) {
    look_at_maintenance(reading.body, news);
  }
}

void Ec2Source::Conversation::look_at_maintenance(const std::string& body, std::vector<Notice>& news) {
  const auto events = internal::parse_maintenance_events(body);
  if (!events) return;
  std::set<std::string> listed;
  for (const internal::MaintenanceEvent& event : *events) {
    const std::string key = event.id.empty() ? event.code : event.id;
    listed.insert(key);
    std::string text = "EC2 has scheduled " +
                       internal::shown(event.code.empty() ? "maintenance" : event.code, 40) +
                       when_words(event.not_before);
    const bool near = !event.not_before || *event.not_before - clock_.wall_now() <= kNear;
    if (near) {
      if (told_events_.insert(key).second) at_risk(news, std::move(text));
    } else if (logged_events_.insert(key).second) {
      log_info("{}", text);
    }
  }
  std::erase_if(told_events_, [&](const std::string& key) { return !listed.contains(key); });
  std::erase_if(logged_events_, [&](const std::string& key) { return !listed.contains(key); });
}

void Ec2Source::Conversation::at_risk(std::vector<Notice>& news, std::string text) {
  news.push_back({.source = std::string(kEc2Name),
                  .kind = NoticeKind::at_risk,
                  .text = std::move(text),
                  .seen = clock_.now()});
}

Ec2Source::Ec2Source(Clock& clock, Ec2Options options)
    : conversation_(std::make_unique<Conversation>(clock, std::move(options))) {}

Ec2Source::~Ec2Source() = default;

std::vector<Notice> Ec2Source::poll() {
  try {
    return conversation_->poll();
  } catch (const std::bad_alloc&) {
    conversation_->tell_again();
    throw;
  }
}
Duration Ec2Source::interval() const { return conversation_->sight().interval(kEc2Interval); }
void Ec2Source::cancel() { conversation_->session().cancel(); }
SourceFigures Ec2Source::figures() const { return conversation_->sight().figures(); }

}  // namespace holdfast::inline v1
