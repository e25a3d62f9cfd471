#include "holdfast/store/names.h"

#include <charconv>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kExtension = ".h5";
constexpr std::string_view kDamagedExtension = ".damaged";
constexpr std::string_view kTemporaryPrefix = "tmp-a";
constexpr std::string_view kStateExtension = ".state.json";
constexpr std::string_view kProgressExtension = ".progress.json";
constexpr std::string_view kStallExtension = ".stall.txt";
constexpr std::string_view kHolderExtension = ".holder.json";
constexpr std::string_view kLedgerPrefix = "ledger-a";
constexpr std::string_view kLedgerExtension = ".jsonl";
constexpr std::size_t kStepDigits = 12;  // least numbers of digits, so that `ls` sorts names by number
constexpr std::size_t kAttemptDigits = 4;

std::string padded(std::uint64_t number, std::size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_end(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// Accepts exactly what padded(number, digits) writes.
std::optional<std::uint64_t> take_number(std::string_view& text, std::size_t digits) {
  const std::size_t length = std::min(text.find_first_not_of("0123456789"), text.size());
  // At most 18 digits fit into a signed 64-bit number. A second spelling of a number would be a second
  // file.
  if (length < digits || length > 18 || (length > digits && text.front() == '0')) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + length, number);
  if (error != std::errc() || end != text.data() + length) return std::nullopt;
  text.remove_prefix(length);
  return number;
}

std::optional<AttemptNumber> take_attempt(std::string_view& text, std::size_t digits) {
  const auto number = take_number(text, digits);
  // Attempts count from 1; 0 stands for none.
  return number && *number > 0 ? number : std::nullopt;
}

}  // namespace

std::string checkpoint_name(FileId id) {
  return std::string(kStepPrefix) + padded(static_cast<std::uint64_t>(id.step), kStepDigits) + "-a" +
         padded(id.attempt, kAttemptDigits) + std::string(kExtension);
}

std::string damaged_name(FileId id) { return checkpoint_name(id) + std::string(kDamagedExtension); }

std::string damaged_name(FileId id, std::uint64_t nth) {
  return damaged_name(id) + (nth < 2 ? std::string() : "-" + std::to_string(nth));
}

std::string temporary_name(AttemptNumber attempt, std::string_view what) {
  return std::string(kTemporaryPrefix) + padded(attempt, kAttemptDigits) + "-" + std::string(what);
}

std::string ledger_name(AttemptNumber attempt) {
  return std::string(kLedgerPrefix) + padded(attempt, kAttemptDigits) + std::string(kLedgerExtension);
}

std::string claim_name(AttemptNumber attempt) { return std::to_string(attempt); }

std::string state_name(AttemptNumber attempt) {
  return std::to_string(attempt) + std::string(kStateExtension);
}

std::string progress_name(AttemptNumber attempt) {
  return std::to_string(attempt) + std::string(kProgressExtension);
}

std::string stall_name(AttemptNumber attempt) {
  return std::to_string(attempt) + std::string(kStallExtension);
}

std::string holder_name(AttemptNumber attempt) {
  return std::to_string(attempt) + std::string(kHolderExtension);
}

std::optional<FileId> parse_checkpoint_name(std::string_view name) {
  if (!take(name, kStepPrefix)) return std::nullopt;
  const auto step = take_number(name, kStepDigits);
  if (!step || !take(name, "-a")) return std::nullopt;
  const auto attempt = take_attempt(name, kAttemptDigits);
  if (!attempt || name != kExtension) return std::nullopt;
  return FileId{.attempt = *attempt, .step = static_cast<std::int64_t>(*step)};
}

std::optional<FileId> parse_damaged_name(std::string_view name) {
  const std::size_t at = name.rfind(kDamagedExtension);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view number = name.substr(at + kDamagedExtension.size());
  if (take(number, "-")) {
    const auto nth = take_number(number, 1);
    // The first has no number.
    if (!nth || *nth < 2) return std::nullopt;
  }
  return number.empty() ? parse_checkpoint_name(name.substr(0, at)) : std::nullopt;
}

std::optional<AttemptNumber> parse_temporary_name(std::string_view name) {
  if (!take(name, kTemporaryPrefix)) return std::nullopt;
  const auto attempt = take_attempt(name, kAttemptDigits);
  // Something must follow the dash, because temporary_name() never writes less.
  return attempt && name.size() > 1 && name.front() == '-' ? attempt : std::nullopt;
}

std::optional<AttemptNumber> parse_claim_name(std::string_view name) {
  const auto attempt = take_attempt(name, 1);
  return name.empty() ? attempt : std::nullopt;
}

std::optional<AttemptNumber> parse_state_name(std::string_view name) {
  return take_end(name, kStateExtension) ? parse_claim_name(name) : std::nullopt;
}

std::optional<AttemptNumber> parse_progress_name(std::string_view name) {
  return take_end(name, kProgressExtension) ? parse_claim_name(name) : std::nullopt;
}

std::optional<AttemptNumber> parse_stall_name(std::string_view name) {
  return take_end(name, kStallExtension) ? parse_claim_name(name) : std::nullopt;
}

std::optional<AttemptNumber> parse_holder_name(std::string_view name) {
  return take_end(name, kHolderExtension) ? parse_claim_name(name) : std::nullopt;
}

std::optional<AttemptNumber> parse_ledger_name(std::string_view name) {
  if (!take(name, kLedgerPrefix)) return std::nullopt;
  const auto attempt = take_attempt(name, kAttemptDigits);
  return attempt && name == kLedgerExtension ? attempt : std::nullopt;
}

bool looks_like_checkpoint(std::string_view name) { return name.starts_with(kStepPrefix); }

}}  // namespace holdfast::v0_2
