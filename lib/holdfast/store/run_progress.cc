#include "holdfast/store/run_progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/utf8.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::array<const char*, 5> kWords{"training", "evaluating", "saving", "pausing", "starting"};
// Twice as many bytes in JSON at worst, which fit into the record beside all numbers at their longest.
constexpr std::size_t kLongestFailure = 400;
constexpr int kReads = 3;  // the record is written in place, so a read may find it torn
// Since 1970, as milliseconds; the clocks of this library count nanoseconds.
constexpr std::int64_t kLastMs = std::numeric_limits<std::int64_t>::max() / 1'000'000;

// A number where JSON has one, a text for nan, inf and -inf.
std::string number_text(double value) {
  // JSON has no nan and no inf.
  const std::string text = shortest_decimal(value);
  return std::isfinite(value) ? text : json_text(text);
}

std::optional<double> number_in(const JsonValue& object, const char* name) {
  const JsonValue* const found = object.find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is(JsonValue::Kind::number)) return found->number;
  if (found->text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (found->text == "inf") return std::numeric_limits<double>::infinity();
  if (found->text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<TrainingPhase> phase_named(std::string_view name) {
  const auto* const found = std::find(kWords.begin(), kWords.end(), name);
  if (found == kWords.end()) return std::nullopt;
  return static_cast<TrainingPhase>(found - kWords.begin());
}

template <class Member>
void take(Member& member, const JsonValue& object, const char* name) {
  const auto value = integer_member(object, name);
  // The record decides nothing, so a member that is missing or out of range keeps its default.
  if (value && std::in_range<Member>(*value)) member = static_cast<Member>(*value);
}

}  // namespace

const char* word_of(TrainingPhase phase) { return kWords.at(static_cast<std::size_t>(phase)); }

std::string to_record(const RunProgress& progress) {
  std::string text = R"({"beat":)" + std::to_string(progress.beat);
  const auto put = [&](const char* name, const std::string& value) {
    text += std::string(",\n\"") + name + "\":" + value;
  };
  const auto count = [&](const char* name, auto value) { put(name, std::to_string(value)); };
  count("attempt", progress.attempt);
  put("phase", json_text(word_of(progress.phase)));
  count("unix_ms", progress.unix_ms);
  // Each value on its own line, so that people can read the file with any tool.
  count("step", progress.step);
  count("last_step", progress.last_step);
  count("still_ms", progress.still_ms);
  if (progress.loss) put("loss", number_text(*progress.loss));
  if (progress.steps_per_second) put("steps_per_second", number_text(*progress.steps_per_second));
  count("durable_step", progress.durable_step);
  count("risk_steps", progress.risk_steps);
  count("risk_ms", progress.risk_ms);
  if (progress.home_risk_steps >= 0) {
    count("home_step", progress.home_step);
    count("home_risk_steps", progress.home_risk_steps);
    count("home_risk_ms", progress.home_risk_ms);
  }
  count("writing_ms", progress.writing_ms);
  count("next_save_ms", progress.next_save_ms);
  count("next_save_step", progress.next_save_step);
  count("save_interval_ms", progress.save_interval_ms);
  if (progress.end_unix_ms >= 0) count("end_unix_ms", progress.end_unix_ms);
  count("saves", progress.saves);
  count("saved_bytes", progress.saved_bytes);
  count("waited_ms", progress.waited_ms);
  count("last_bytes", progress.last_bytes);
  count("last_save_ms", progress.last_save_ms);
  if (!progress.failure.empty()) {
    put("failure", json_text(printable(progress.failure, kLongestFailure)));
  }
  // One number stands at both ends: a reader that meets the write sees two different ones.
  const std::string end = ",\n\"beat_ends\":" + std::to_string(progress.beat) + "}\n";
  if (text.size() + end.size() > kProgressBytes) throw Error("a progress record is too long");
  // Always the same size, so that one write replaces the whole record.
  return text + std::string(kProgressBytes - text.size() - end.size(), ' ') + end;
}

std::optional<RunProgress> progress_from_record(const std::string& text) {
  // A torn record of a crash or of a running write is simply read again.
  if (text.size() != kProgressBytes) return std::nullopt;
  const JsonValue json = parse_json(text);
  const auto phase = phase_named(text_member(json, "phase").value_or(""));
  const auto beat = integer_member(json, "beat");
  if (!phase || !beat || beat != integer_member(json, "beat_ends")) return std::nullopt;
  RunProgress progress;
  progress.phase = *phase;
  progress.beat = *beat;
  take(progress.attempt, json, "attempt");
  take(progress.unix_ms, json, "unix_ms");
  take(progress.step, json, "step");
  take(progress.last_step, json, "last_step");
  take(progress.still_ms, json, "still_ms");
  progress.loss = number_in(json, "loss");
  progress.steps_per_second = number_in(json, "steps_per_second");
  take(progress.durable_step, json, "durable_step");
  take(progress.risk_steps, json, "risk_steps");
  take(progress.risk_ms, json, "risk_ms");
  take(progress.home_step, json, "home_step");
  take(progress.home_risk_steps, json, "home_risk_steps");
  take(progress.home_risk_ms, json, "home_risk_ms");
  take(progress.writing_ms, json, "writing_ms");
  take(progress.next_save_ms, json, "next_save_ms");
  take(progress.next_save_step, json, "next_save_step");
  take(progress.save_interval_ms, json, "save_interval_ms");
  take(progress.end_unix_ms, json, "end_unix_ms");
  take(progress.saves, json, "saves");
  take(progress.saved_bytes, json, "saved_bytes");
  take(progress.waited_ms, json, "waited_ms");
  take(progress.last_bytes, json, "last_bytes");
  take(progress.last_save_ms, json, "last_save_ms");
  progress.failure = text_member(json, "failure").value_or("");
  if (progress.end_unix_ms > kLastMs) progress.end_unix_ms = -1;
  const bool is_time = progress.unix_ms >= 0 && progress.unix_ms <= kLastMs;
  return progress.attempt != 0 && is_time ? std::optional(std::move(progress)) : std::nullopt;
}

std::optional<RunProgress> read_progress(Directory& run_directory, AttemptNumber attempt) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  if (!attempts) return std::nullopt;
  // At once and without a pause, because one call replaces the record: a second read seldom meets it.
  for (int read = 0; read < kReads; ++read) {
    const auto text = internal::read_small(*attempts, progress_name(attempt), kProgressBytes);
    if (!text) return std::nullopt;
    auto progress = progress_from_record(*text);
    if (progress) return progress->attempt == attempt ? progress : std::nullopt;
  }
  return std::nullopt;
}

void ProgressFile::write(const RunProgress& progress) {
  if (!file_) {
    const auto run = file_system_.open_directory(run_directory_, false);
    const auto attempts = run ? run->open_directory(kAttemptsDirectory, false) : nullptr;
    if (!attempts) return;  // somebody emptied the directory; the writer finds out
    const std::string name = progress_name(attempt_);
    if (tried_) file_ = attempts->open(name, OpenMode::overwrite_direct);
    if (!file_) {
      const bool own = std::exchange(tried_, true);  // a create that fails may have made the file
      file_ = attempts->open(name, OpenMode::create);
      // Exclusive: two processes that write for one attempt are a defect.
      if (!file_) {
        tried_ = own;
        throw Error(name + " exists already");
      }
    }
  }
  alignas(kProgressBytes) std::array<char, kProgressBytes> record{};  // as overwrite_direct wants it
  const std::string text = to_record(progress);
  std::copy(text.begin(), text.end(), record.begin());
  try {
    file_->write_at(std::as_bytes(std::span(record)), 0);
  } catch (...) {
    file_.reset();  // a descriptor may be dead for good (ESTALE, ENOTCONN)
    throw;
  }
}

}}  // namespace holdfast::v0_2
