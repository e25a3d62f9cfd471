#include "holdfast/interruption/ec2_source.h"

#include <array>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/ec2_words.h"
#include "holdfast/interruption/internal/shown_text.h"
#include "holdfast/interruption/notice_file.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::Ec2Reading;
using Kind = Ec2Reading::Kind;

// AWS recommends polls every 5 s; at 2 s a notice of 2 min loses less than 2 %.
constexpr Duration kEc2Interval = std::chrono::seconds(2);
// Maintenance is announced days ahead; only what comes within minutes is worth a save.
constexpr Duration kEc2Near = std::chrono::minutes(10);

constexpr std::string_view kAction = "spot/instance-action";
constexpr std::string_view kTermination = "spot/termination-time";
constexpr std::string_view kRebalance = "events/recommendations/rebalance";
constexpr std::string_view kLifecycle = "autoscaling/target-lifecycle-state";
constexpr std::string_view kMaintenance = "events/maintenance/scheduled";
// One of these each poll, so that a poll makes two requests and not five.
constexpr std::array kTurns{kTermination, kRebalance, kLifecycle, kMaintenance};

std::string when_words(std::optional<WallTime> time) { return time ? " at " + format_utc(*time) : ""; }

}  // namespace

Ec2Source::Ec2Source(Clock& clock, Ec2Options options)
    : ServiceSource(clock, "ec2", "EC2's metadata service", kUnknownNoticeTime, options.blind_after),
      session_(clock, std::move(options.endpoint), options.request_limit) {}

Duration Ec2Source::interval() const { return sight_.interval(kEc2Interval); }

std::vector<Notice> Ec2Source::look() {
  std::vector<Notice> news;
  look_at_action(news);
  // Each request may take a second, and if the first one fails the others fail too.
  if (sight_.failing()) return news;
  // The first poll asks all paths, because an announcement may be older than this process.
  if (std::exchange(first_, false)) {
    for (const std::string_view path : kTurns) look_at(path, news);
  } else {
    look_at(kTurns[turn_++ % kTurns.size()], news);
  }
  return news;
}

void Ec2Source::look_at_action(std::vector<Notice>& news) {
  const Ec2Reading reading = session_.get(kAction);
  if (reading.kind == Kind::cancelled) return;
  if (reading.kind == Kind::refused) {
    sight_.refused(
        "it refuses to answer (403; it is switched off for this instance or blocked by a rule), switch it on "
        "with aws ec2 modify-instance-metadata-options --http-endpoint enabled");
    return;
  }
  if (reading.kind == Kind::body) {
    if (const auto action = internal::parse_instance_action(reading.body)) {
      sight_.saw();
      // Unknown actions count as well: a word that AWS adds later must not be missed.
      const std::string word = action->action.empty() ? "no action" : internal::shown(action->action, 40);
      std::string text = "EC2 announces " + word + when_words(action->time);
      const auto end = internal::believed(action->time, clock_, reading.service_now);
      end_.coming({{.when = end, .hibernates = action->action == "hibernate", .text = std::move(text)}},
                  news);
      return;
    }
    // Something was announced, but not understandably. The older form may be readable.
    sight_.missed("its answer about the instance's action is not a JSON object");
    look_at_termination(news);
    return;
  }
  if (reading.kind == Kind::unknown) {
    sight_.missed(reading.failure);
    return;
  }
  sight_.saw();
  // A 404 after an announcement withdraws it only if the older form agrees.
  if (!end_.told() || look_at_termination(news) != std::optional(false)) return;
  end_.nothing("EC2 no longer announces an interruption", news);
}

Ec2Reading Ec2Source::get_unless_refused(std::string_view path) {
  if (refusals_.rests(path)) return {.kind = Kind::refused};
  Ec2Reading reading = session_.get(path, path == kMaintenance ? internal::kMostList : internal::kMostBody);
  if (reading.kind == Kind::refused) refusals_.refused(path);
  if (reading.too_long) refusals_.too_long(path, reading.failure);
  return reading;
}

std::optional<bool> Ec2Source::look_at_termination(std::vector<Notice>& news) {
  const Ec2Reading reading = get_unless_refused(kTermination);
  if (reading.kind == Kind::nothing) return false;
  if (reading.kind != Kind::body) return std::nullopt;
  // EC2's manual: the item may hold a value that is not a time. Then nothing is coming.
  const auto time = parse_service_time(reading.body);
  if (!time) return false;
  const auto end = internal::believed(time, clock_, reading.service_now);
  end_.coming({{.when = end, .text = "EC2 announces its termination" + when_words(time)}}, news);
  return true;
}

// A failure here does not make the source blind: only spot/instance-action decides that.
void Ec2Source::look_at(std::string_view path, std::vector<Notice>& news) {
  if (path == kTermination) {
    look_at_termination(news);
    return;
  }
  const Ec2Reading reading = get_unless_refused(path);
  if (reading.kind == Kind::unknown) log_debug("{}", reading.failure);
  if (reading.kind != Kind::body && reading.kind != Kind::nothing) return;
  const bool there = reading.kind == Kind::body;
  if (path == kRebalance) {
    const bool rebalance = there && internal::is_json_object(reading.body);
    if (rebalance && !std::exchange(rebalanced_, true)) at_risk(news, "EC2 recommends to rebalance");
    // A recommendation that went away and comes again is news.
    if (!there) rebalanced_ = false;
  } else if (path == kLifecycle) {
    // "Terminated" is the state that the group wants, and it is set before the notice comes.
    const bool ending = there && reading.body == "Terminated";
    if (ending && !std::exchange(ending_group_, true) && !end_.told()) {
      // A notice with a deadline says more, so the hint would only repeat it.
      at_risk(news, "EC2's scaling group is about to terminate this instance");
    }
    if (!ending) ending_group_ = false;
  } else if (there) {
    look_at_maintenance(reading.body, news);
  }
}

void Ec2Source::look_at_maintenance(const std::string& body, std::vector<Notice>& news) {
  const auto events = internal::parse_maintenance_events(body);
  if (!events) return;
  std::set<std::string> listed;
  for (const internal::MaintenanceEvent& event : *events) {
    // The id may be missing; the code then tells events apart.
    const std::string key = event.id.empty() ? event.code : event.id;
    listed.insert(key);
    std::string text = "EC2 has scheduled " +
                       internal::shown(event.code.empty() ? "maintenance" : event.code, 40) +
                       when_words(event.not_before);
    // An event without a time may begin at any moment.
    const bool near = !event.not_before || *event.not_before - clock_.wall_now() <= kEc2Near;
    // A risk and no end: the shutdown itself sends a SIGTERM.
    if (near) {
      if (told_events_.insert(key).second) at_risk(news, std::move(text));
    } else if (logged_events_.insert(key).second) {
      log_info("{}", text);
    }
  }
  // Forgotten with the list: an event that is listed again is news, and the sets stay small.
  std::erase_if(told_events_, [&](const std::string& key) { return !listed.contains(key); });
  std::erase_if(logged_events_, [&](const std::string& key) { return !listed.contains(key); });
}

}}  // namespace holdfast::v0_2
