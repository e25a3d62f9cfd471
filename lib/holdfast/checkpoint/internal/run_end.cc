#include "holdfast/checkpoint/internal/run_end.h"

#include <exception>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr char kNoStep[] =
    "the run ended without a single step: after_step() was never called, and nothing was resumed";

std::string what_stands(std::int64_t durable) {
  return durable >= 0 ? "step " + std::to_string(durable) + " is the newest that is durable"
                      : "nothing of this run is durable";
}

}  // namespace

void RunEnd::finish(const std::function<std::string()>& told_to_stop) {
  const SteadyTime began = run_.clock.now();
  listener_.end();
  heartbeat_.ending();
  evaluation_.take_back();
  const bool interrupted = run_.outlook.should_stop();
  reason_ = run_.outlook.reason();
  run_.outlook.take_time(!interrupted);
  if (interrupted) limit_.lift();
  // A copy in progress is completed only if its commit can end in time.
  run_.last_save_too_late() ? late_.drop() : evaluation_.settle_late();
  if (interrupted) run_.writer->leave_soon();

  const std::string torn = evaluation_.why_torn();
  if (!interrupted) boundary_saves_.look_again();  // it reads all frozen weights, which takes time
  bool in_time = torn.empty() ? commit_last_step() : writes_.await_save();
  partners_.last_save_begun();
  // A save that failed is tried once more, in a new file.
  if (in_time && torn.empty() && !saves_.covered() && !run_.writer->superseded()) {
    partners_.last_save_again();
    in_time = commit_last_step();
  }
  run_.started.receipt.close();

  if (in_time) {
    writes_.stop_writer();
  } else {
    writes_.leave_thread_behind();
  }
  run_.book->finished(run_.clock.now() - began);
  close();
  say_figures();

  if (run_.writer->superseded()) {
    reason_ = run_.writer->superseded_reason();
    code_ = static_cast<int>(ExitCode::superseded);
    return;
  }
  const bool told = interrupted || run_.outlook.must_stop();
  const std::string others = told || saves_.safe() || !told_to_stop ? std::string() : told_to_stop();
  if (!others.empty()) add_to_reason(others);
  const RunPhase how = judge(interrupted, told || !others.empty(), in_time, torn);
  // A writer that hangs in the disk still owns the store.
  if (!gave_up() && !tell(how, reason_, code_)) code_ = static_cast<int>(ExitCode::superseded);
}

void RunEnd::break_off(const Error& error) noexcept {
  const bool interrupted = error.exit_code() == ExitCode::interrupted;
  code_ = interrupted ? run_.options.notices.exit_code_interrupted : static_cast<int>(error.exit_code());
  reason_ = text_or_out_of_memory([&] { return std::string(error.what()); });
  listener_.end();
  if (run_.writer) {
    late_.drop();
    limit_.lift();
    if (writes_.await_save()) writes_.stop_writer();
  }
  close();
  if (run_.writer && !gave_up()) tell(interrupted ? RunPhase::interrupted : RunPhase::failed, reason_, code_);
}

void RunEnd::adopt_outcome(int code, std::string reason) noexcept {
  code_ = code;
  reason_ = std::move(reason);
  listener_.end();
  close();
}

void RunEnd::close() noexcept {
  over_ = true;
  run_.started.form = nullptr;  // the program may add parts for another run
  // The writer has just found out whether the disk answers.
  heartbeat_.stop(gave_up() ? Duration::zero() : Heartbeat::kPatience);
  run_.book->close();
  listener_.run_is_over();
}

// Sets the code and the reason. A run that was told to stop and has a durable step is interrupted (75), even
// if its last save failed: the next attempt resumes from the durable step. One that stopped because no save
// succeeds has failed.
RunPhase RunEnd::judge(bool interrupted, bool told, bool in_time, const std::string& torn) {
  const std::int64_t durable = run_.newest_durable();
  const std::string stands = text_or_out_of_memory([&] { return what_stands(durable); });
  const auto ends_as = [this](RunPhase how, int code) {
    code_ = code;
    return how;
  };
  const auto fails = [&](ExitCode code) { return ends_as(RunPhase::failed, static_cast<int>(code)); };
  const auto is_interrupted = [&] {
    return ends_as(RunPhase::interrupted, run_.options.notices.exit_code_interrupted);
  };

  if (!torn.empty()) {
    log_error("{}; nothing newer is committed, {}", torn, stands);
    add_to_reason(torn);
    if (!told) return fails(ExitCode::internal);
    return unsaved_.gave_up() ? fails(ExitCode::io_failed) : is_interrupted();
  }
  if (!told && run_.step() == 0) {
    log_error("{}; call it after every optimizer update", kNoStep);
    add_to_reason(kNoStep);
    return fails(ExitCode::internal);
  }
  if (saves_.safe()) {
    return interrupted ? is_interrupted() : ends_as(RunPhase::complete, static_cast<int>(ExitCode::complete));
  }
  if (in_time && left_out_ && !run_.writer->failing()) {
    reason_ = reason_of_leaving_out();
    return is_interrupted();
  }
  const std::optional<std::string> reported = run_.writer->failure();
  const std::string failure =
      reported ? *reported
               : text_or_out_of_memory([] { return std::string("the last save did not end in time"); });
  log_error("{}; what was acknowledged before stands: {}", failure, stands);
  add_to_reason(failure);
  if (told && durable >= 0 && !unsaved_.gave_up()) return is_interrupted();
  return fails(saves_.unsavable().known() ? ExitCode::usage : ExitCode::io_failed);
}

bool RunEnd::commit_last_step() {
  if (!saves_.covered() && !run_.writer->superseded()) {
    left_out_ = run_.last_save_too_late() || partners_.hopeless();
    if (!left_out_ && !boundary_saves_.save_last()) {
      // An end that was announced while it waited for an image may leave no time.
      left_out_ = run_.last_save_too_late();
      if (!left_out_) return false;
    }
    if (left_out_) run_.outlook.warnings().too_late(saves_.reached());
  }
  return writes_.await_save();
}

bool RunEnd::tell(RunPhase how, std::string_view reason, int code) noexcept {
  try {
    const AsyncWriter::Acknowledged last =
        run_.writer ? run_.writer->last_acknowledged() : AsyncWriter::Acknowledged{};
    RunState state;
    state.attempt = run_.started.record.attempt;
    state.phase = how;
    state.step = run_.step();
    state.durable_step = last.step >= 0 ? last.step : run_.started.durable.step;
    state.checkpoint = last.step >= 0 ? last.checkpoint : run_.started.durable.checkpoint;
    state.reason = reason;
    state.exit_code = code;
    state.time = format_utc(run_.clock.wall_now());
    put_figures(state, run_.book->figures());
    auto superseded = writes_.tell(std::move(state));
    if (!superseded) return true;
    reason_ = std::move(*superseded);
    return false;
  } catch (const std::exception& error) {
    log_warning("the run state could not be written: {}", what_of(error));
  }
  return true;
}

void RunEnd::add_to_reason(const std::string& text) noexcept {
  reason_ = text_or_out_of_memory([&] { return reason_.empty() ? text : reason_ + "; " + text; });
}

// Nothing failed: the next attempt resumes from the durable step.
std::string RunEnd::reason_of_leaving_out() const noexcept {
  return text_or_out_of_memory([&] {
    std::string text = reason_.empty() ? run_.outlook.reason() : reason_;
    text += "; no time was left to save step " + std::to_string(run_.step()) + ", ";
    return text + what_stands(run_.newest_durable());
  });
}

void RunEnd::say_figures() const noexcept {
  const RunFigures figures = run_.book->figures();
  if (figures.durable == 0) return;
  const std::string text = text_or_out_of_memory([&] { return to_text(figures); });
  log_info(text);
}

// No warning while an exception ends the program, because that is reported by itself.
void RunEnd::say_unfinished() const noexcept {
  const std::string text = text_or_out_of_memory([&] {
    return "the Checkpointer ends without finish(): nothing new is committed, and the run counts as broken "
           "off; step " +
           std::to_string(run_.step()) + " is reached, " + what_stands(run_.newest_durable());
  });
  std::uncaught_exceptions() > 0 || saves_.covered() ? log_info(text) : log_warning(text);
}

}}}  // namespace holdfast::v0_2::internal
