#include "holdfast/writing/failure_streak.h"

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/writing/joint_save.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The shortest automatic interval. Fixed intervals of a few steps would fill the log.
constexpr Duration kBetweenLines = std::chrono::seconds(10);

template <class Kind>
bool is(const std::exception& error) noexcept {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string what_stands(std::int64_t durable) {
  return durable >= 0 ? "step " + std::to_string(durable) + " is the last durable one"
                      : "nothing of this attempt is durable yet";
}

}  // namespace

bool may_pass(const std::exception& error) noexcept {
  if (const auto* const io = dynamic_cast<const IoError*>(&error)) {
    const int code = io->code();
    return code != EROFS && code != EFBIG && code != EACCES && code != EPERM;
  }
  return is<OutOfMemoryError>(error) || is<std::bad_alloc>(error) || is<std::system_error>(error) ||
         is<OtherRankError>(error);
}

FailureStreak::Line FailureStreak::failed(const std::string& text, FailureKind kind, SteadyTime now,
                                          std::int64_t durable) noexcept {
  const bool first = state_.count == 0;
  const bool lasted = std::exchange(state_.lasts, kind != FailureKind::may_pass);
  ++state_.count;
  state_.last = now;
  if (first) state_.first = now;
  text_ = text_or_out_of_memory([&] { return text; });
  const bool again = state_.lasts && (!lasted || now - logged_ >= kBetweenLines);
  if (!first && !again) return {.text = text_};
  logged_ = now;
  return {.level = first ? LogLevel::warning : LogLevel::error,
          .text = text_or_out_of_memory([&] {
            std::string line = text;
            if (!first) {
              line += "; no save has succeeded for " + format_duration(now - state_.first) + " (" +
                      std::to_string(state_.count) + " in a row failed)";
            }
            if (kind == FailureKind::lasts)
              line += "; this cannot pass by itself, so stop the run and mend the cause";
            if (kind != FailureKind::ends_run) line += "; training goes on";
            return line + ", " + what_stands(durable);
          })};
}

bool FailureStreak::succeeded() noexcept {
  const bool failed = state_.count > 0;
  state_ = {};
  text_.clear();
  return failed;
}

std::optional<FailureStreak::State> FailureStreak::state() const noexcept {
  return state_.count > 0 ? std::optional(state_) : std::nullopt;
}

}}  // namespace holdfast::v0_2
