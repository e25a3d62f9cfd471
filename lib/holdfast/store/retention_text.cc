#include "holdfast/store/retention_text.h"

#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr const char* kForms =
    "last=N, every=STEPS, best=METRIC:min|max[:N] and newer=TIME, with commas between";

[[noreturn]] void misunderstood(std::string_view part, const std::string& why) {
  throw UsageError("keep: '" + std::string(part) + "' " + why + "; what to keep is a number, or " + kForms);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    // Empty parts stay, so that a comma too many is refused and not ignored.
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

int count_in(std::string_view part, std::string_view digits) {
  const auto count = parse_int(digits);
  // Zero and negative counts pass: Retention::check() refuses them, and says how many are needed.
  if (!count || *count > std::numeric_limits<int>::max() || *count < std::numeric_limits<int>::min()) {
    misunderstood(part, "has no number, or too large a one");
  }
  return static_cast<int>(*count);
}

Retention best_in(std::string_view part, std::string_view value) {
  const auto fields = split(value, ':');
  KeepBest best{.metric = std::string(fields[0])};
  if (fields.size() > 3) misunderstood(part, "has too many colons");
  // Only of a loss is it clear that smaller is better.
  if (fields.size() == 1 && best.metric != "loss") {
    misunderstood(part, "does not say whether the greatest (:max) or the smallest (:min) is the best");
  }
  if (fields.size() > 1) {
    if (fields[1] != "min" && fields[1] != "max") misunderstood(part, "has neither min nor max");
    best.better = fields[1] == "max" ? Better::higher : Better::lower;
  }
  if (fields.size() > 2) best.count = count_in(part, fields[2]);
  return best;
}

Retention one_policy(std::string_view part) {
  // A bare number is the short form of last=N.
  if (parse_int(part)) return KeepLast{count_in(part, part)};
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) misunderstood(part, "is no policy");
  const std::string_view name = part.substr(0, equals);
  const std::string_view value = part.substr(equals + 1);
  if (name == "last") return KeepLast{count_in(part, value)};
  if (name == "best") return best_in(part, value);
  if (name == "every") {
    const auto steps = parse_int(value);
    if (!steps) misunderstood(part, "has no number of steps");
    return KeepEvery{*steps};
  }
  if (name == "newer") {
    const auto age = parse_duration(value);
    if (!age) misunderstood(part, "has no time like 12h or 7d");
    return KeepNewer{*age};
  }
  misunderstood(part, "is no policy");
}

std::string text_of(const KeepLast& policy) { return "last=" + std::to_string(policy.count); }
std::string text_of(const KeepEvery& policy) { return "every=" + std::to_string(policy.steps); }
std::string text_of(const KeepBest& policy) {
  return "best=" + policy.metric + (policy.better == Better::higher ? ":max:" : ":min:") +
         std::to_string(policy.count);
}
std::string text_of(const KeepNewer& policy) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(policy.age);
  // Whole seconds read better; anything finer keeps its exact value in nanoseconds.
  if (seconds != policy.age) return "newer=" + std::to_string(policy.age.count()) + "ns";
  if (seconds.count() % 86400 == 0) return "newer=" + std::to_string(seconds.count() / 86400) + "d";
  return "newer=" + std::to_string(seconds.count()) + "s";
}

}  // namespace

Retention parse_retention(std::string_view text) {
  // Not from an empty Retention: that is KeepLast{3}, which nobody asked for.
  std::optional<Retention> all;
  for (const std::string_view part : split(text, ',')) {
    const Retention one = one_policy(part);
    all = all ? *all | one : one;
  }
  all->check();
  return *all;
}

std::string to_text(const Retention& keep) {
  std::string text;
  for (const KeepPolicy& policy : keep.policies()) {
    text += (text.empty() ? "" : ",") + std::visit([](const auto& one) { return text_of(one); }, policy);
  }
  return text;
}

}}  // namespace holdfast::v0_2
