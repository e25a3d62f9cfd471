#include "holdfast/ledger/loss_ring.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "holdfast/base/bits.h"
#include "holdfast/ledger/ledger_lines.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kFrom = R"(,"from":)";
constexpr std::string_view kBits = R"(,"bits":")";
constexpr std::string_view kTail = R"("})";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kMostPerLine = 1024;  // limits what a torn last line loses

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// Accepts only lines exactly as drain() writes them; the ledger's other lines are skipped.
std::optional<std::pair<std::int64_t, std::string_view>> parse_line(std::string_view line) {
  std::int64_t from = 0;
  if (!take(line, kLossesLine) || !take(line, kFrom)) return std::nullopt;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), from);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (!take(line, kBits) || !line.ends_with(kTail)) return std::nullopt;
  line.remove_suffix(kTail.size());
  if (line.size() % kDigits != 0) return std::nullopt;
  // The step after the last loss must be representable too.
  const auto count = static_cast<std::int64_t>(line.size() / kDigits);
  if (from < 0 || from > std::numeric_limits<std::int64_t>::max() - count) return std::nullopt;
  return std::pair(from, line);
}

}  // namespace

void LossRing::push(std::int64_t step, double loss) noexcept {
  // The newest loss is kept even if the ring is full, because `status` shows it.
  newest_.store(loss, std::memory_order_relaxed);
  any_.store(true, std::memory_order_release);
  // A NaN never equals itself, so it would only produce false differences.
  if (std::isnan(loss)) return;
  const std::uint64_t at = written_.load(std::memory_order_relaxed);
  // Acquire: the writer's thread must have read an entry before this one overwrites it.
  // Full: the loss is dropped, because the training must not wait for the disk.
  if (at - read_.load(std::memory_order_acquire) >= kCapacity) return;
  entries_[at % kCapacity] = {step, loss};
  // Release: the writer's thread sees the entry before it sees the count.
  written_.store(at + 1, std::memory_order_release);
}

std::optional<double> LossRing::newest() const noexcept {
  // Acquire pairs with the release in push(): then a first loss is there.
  if (!any_.load(std::memory_order_acquire)) return std::nullopt;
  return newest_.load(std::memory_order_relaxed);
}

void LossRing::drain(const std::function<void(const std::string& line)>& write) {
  const std::uint64_t end = written_.load(std::memory_order_acquire);
  // Relaxed: only this thread writes it.
  std::uint64_t at = read_.load(std::memory_order_relaxed);
  while (at != end) {
    const std::int64_t from = entries_[at % kCapacity].step;
    std::string line(kLossesLine);
    line += kFrom;
    line += std::to_string(from);
    line += kBits;
    std::int64_t next = from;
    for (std::size_t n = 0; at != end && n < kMostPerLine; ++n, ++at, ++next) {
      const Entry& entry = entries_[at % kCapacity];
      // A gap in the steps (a NaN, a dropped loss) begins a new line.
      if (entry.step != next) break;
      line += bits_hex(entry.loss);
    }
    line += kTail;
    write(line);
    // Its entries were copied, so the training may reuse them.
    read_.store(at, std::memory_order_release);
  }
}

std::map<std::int64_t, double> losses_in(const std::vector<std::string>& ledger_lines) {
  std::map<std::int64_t, double> losses;
  for (const std::string& line : ledger_lines) {
    const auto parsed = parse_line(line);
    if (!parsed) continue;
    auto [step, bits] = *parsed;
    for (; !bits.empty(); bits.remove_prefix(kDigits), ++step) {
      const auto loss = double_from_bits_hex(bits.substr(0, kDigits));
      if (!loss) break;
      // The first value counts: a resumed run must repeat the losses that were there before.
      losses.emplace(step, *loss);
    }
  }
  return losses;
}

}}  // namespace holdfast::v0_2
