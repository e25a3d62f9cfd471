#include "holdfast/ledger/ledger_lines.h"

#include <algorithm>
#include <span>

#include "holdfast/ledger/ledger_reader.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kDeepest = 16;

}  // namespace

LedgerMembers::LedgerMembers(std::string_view line) : line_(parse_json(line, kDeepest)) {}

std::optional<Duration> LedgerMembers::time(std::string_view name, Duration most) const {
  const JsonValue* const found = line_.find(name);
  if (found == nullptr || !found->is(JsonValue::Kind::number)) return std::nullopt;
  // Negated, so that NaN is refused as well.
  const std::chrono::duration<double, std::milli> time(found->number);
  if (!(std::chrono::abs(time) <= most)) return std::nullopt;
  return std::chrono::duration_cast<Duration>(time);
}

bool LedgerMembers::flag(std::string_view name) const {
  const JsonValue* const found = line_.find(name);
  return found != nullptr && found->is(JsonValue::Kind::boolean) && found->integer == 1;
}

LedgerLines::LedgerLines(const File& file, std::uint64_t most)
    : file_(file), end_(file.size()), piece_(64 << 10) {
  // The beginning has the start line and the end has the last word; the middle is what can be spared.
  if (end_ > most) middle_ = {most / 2, end_ - most / 2};
}

std::int64_t LedgerLines::each(const std::function<void(std::string_view)>& take,
                               const std::function<void()>& cut) {
  std::int64_t too_long = 0;
  std::string line;
  bool skipping = false;
  for (std::uint64_t at = 0; at < end_;) {
    const std::uint64_t until = at < middle_.first ? middle_.first : end_;
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(piece_.size(), until - at));
    const std::size_t got = file_.read_at(std::span(piece_).first(wanted), at);
    if (got == 0) break;
    at += got;
    std::string_view text(reinterpret_cast<const char*>(piece_.data()), got);
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      const std::string_view part = text.substr(0, newline);
      // A line without an end must not take the memory of the reader.
      if (line.size() + part.size() > kLongestLedgerLine) skipping = true;
      if (!skipping) line += part;
      if (newline == std::string_view::npos) break;
      text.remove_prefix(newline + 1);
      if (std::exchange(skipping, false)) {
        ++too_long;
      } else if (!line.empty()) {
        take(line);
      }
      // A line that was skipped leaves nothing behind.
      line.clear();
    }
    if (at == middle_.first && at < middle_.second) {
      at = middle_.second;
      if (cut) cut();
      skipping = true;  // the line that the cut broke
    }
  }
  return too_long;
}

}}  // namespace holdfast::v0_2
