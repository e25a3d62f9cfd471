#include "holdfast/cli/life_story.h"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "holdfast/checkpoint/loss_ring.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::uint64_t kMostOfAStory = 64 << 20;

std::int64_t number_in(const nlohmann::json& line, const char* name, std::int64_t otherwise) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number()) return otherwise;
  // A number that no clock and no step can have is as good as none.
  const auto value = found->get<double>();
  constexpr double kMost = 4e18;
  return value > -kMost && value < kMost ? static_cast<std::int64_t>(value) : otherwise;
}

std::string text_in(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

Duration milliseconds(std::int64_t count) {
  constexpr std::int64_t kMost = std::int64_t{100} * 366 * 24 * 3600 * 1000;  // a hundred years
  return std::chrono::milliseconds(std::clamp(count, -kMost, kMost));
}

void add(const nlohmann::json& line, LifeStory& story) {
  const std::string event = text_in(line, "event");
  const WallTime when{milliseconds(number_in(line, "t", 0))};
  const std::int64_t step = number_in(line, "step", -1);
  story.furthest_step = std::max(story.furthest_step, step);
  if (event == "start") {
    const std::int64_t from = number_in(line, "from_attempt", 0);
    story.start = {.when = when,
                   .step = step,
                   .from_attempt = from > 0 ? static_cast<AttemptNumber>(from) : 0,
                   .boot = text_in(line, "boot")};
  } else if (event == "commit" && step >= 0) {
    story.commits.push_back({.when = when, .step = step});
  } else if (event == "notice") {
    LifeStory::Warning warning{
        .when = when, .source = text_in(line, "source"), .kind = text_in(line, "kind")};
    if (line.contains("left_ms")) warning.left = milliseconds(number_in(line, "left_ms", 0));
    story.notices.push_back(std::move(warning));
  } else if (event == "pause" && step >= 0) {
    story.paused_at = step;
  } else if (event == "go on") {
    story.paused_at.reset();
  } else if (event == "losses") {
    const std::int64_t first = number_in(line, "from", -1);
    const auto count = static_cast<std::int64_t>(text_in(line, "bits").size() / 16);
    if (first >= 0 && count > 0) story.furthest_step = std::max(story.furthest_step, first + count - 1);
  }
}

std::vector<std::string> lines_with_losses(std::string_view text) {
  std::vector<std::string> lines;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    if (line.find("\"losses\"") != std::string_view::npos) lines.emplace_back(line);
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

std::optional<WallTime> LifeStory::machine_ends() const {
  std::map<std::string, WallTime> by_source;
  for (const Warning& notice : notices) {
    if (notice.kind == "withdrawn") by_source.erase(notice.source);
    if (notice.kind != "deadline" || !notice.left || notice.source == "deadline") continue;
    const WallTime ends = notice.when + *notice.left;
    const auto [known, fresh] = by_source.emplace(notice.source, ends);
    if (!fresh) known->second = std::min(known->second, ends);
  }
  std::optional<WallTime> earliest;
  for (const auto& [source, ends] : by_source) earliest = earliest ? std::min(*earliest, ends) : ends;
  return earliest;
}

LifeStory parse_life_story(std::string_view lines) {
  LifeStory story;
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    if (end == std::string_view::npos) break;  // torn
    const nlohmann::json line = nlohmann::json::parse(lines.substr(0, end), nullptr, false);
    if (line.is_object()) add(line, story);
    lines.remove_prefix(end + 1);
  }
  return story;
}

Recomputed compare_losses(std::string_view older_ledger, std::string_view newer_ledger) {
  const auto older = losses_in(lines_with_losses(older_ledger));
  const auto newer = losses_in(lines_with_losses(newer_ledger));
  Recomputed recomputed;
  for (const auto& [step, loss] : newer) {
    const auto before = older.find(step);
    if (before == older.end()) continue;
    ++recomputed.steps;
    if (std::bit_cast<std::uint64_t>(before->second) != std::bit_cast<std::uint64_t>(loss)) {
      ++recomputed.different;
    }
  }
  return recomputed;
}

std::string read_ledger_text(Directory& run_directory, AttemptNumber attempt) {
  const auto file = run_directory.open(ledger_name(attempt), OpenMode::read);
  if (!file) return {};
  const std::uint64_t size = file->size();
  const std::uint64_t from = size > kMostOfAStory ? size - kMostOfAStory : 0;
  std::string text(size - from, '\0');
  text.resize(file->read_at(std::as_writable_bytes(std::span(text)), from));
  return text;
}

LifeStory read_life_story(Directory& run_directory, AttemptNumber attempt) {
  return parse_life_story(read_ledger_text(run_directory, attempt));
}

}  // namespace holdfast::inline v1
