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

void RunEnd::finish(const run::Exit& exit, Circumstances at) noexcept {
  reason_ = std::move(at.reason);
  stop_writer();
  run_.book->finished(run_.clock.now() - at.began);
  close();
  const RunFigures figures = run_.book->figures();
  if (figures.durable > 0) log_info(text_or_out_of_memory([&] { return to_text(figures); }));
  if (exit.how == run::Ending::superseded || run_.writer->superseded()) {
    reason_ = run_.writer->superseded_reason();
    code_ = static_cast<int>(ExitCode::superseded);
    return;
  }
  if (!driver_.others_told().empty()) add_to_reason(driver_.others_told());
  const RunPhase how = describe(exit, at.torn);
  // A writer that hangs in the disk still owns the store.
  if (!gave_up() && !tell(how, reason_, code_)) code_ = static_cast<int>(ExitCode::superseded);
}

// The writer's thread ends, unless it hangs in the disk.
void RunEnd::stop_writer() noexcept {
  if (driver_.writing()) {
    writes_.leave_thread_behind();
  } else {
    writes_.stop_writer();
  }
}

void RunEnd::break_off(const Error& error) noexcept {
  const bool interrupted = error.exit_code() == ExitCode::interrupted;
  code_ = interrupted ? run_.options.notices.exit_code_interrupted : static_cast<int>(error.exit_code());
  reason_ = text_or_out_of_memory([&] { return std::string(error.what()); });
  driver_.listener().end();
  if (driver_.begun()) {
    try {
      // Rank 0 waits for the others' shares as long as its patience lasts, and for its own write.
      const Duration within = driver_.leads() ? Duration::max() : Duration(std::chrono::seconds(10));
      driver_.call(run::RankLost{code_, within});
    } catch (const std::exception& what) {
      log_warning("what was being written is left behind: {}", what_of(what));
    }
  }
  if (run_.writer) stop_writer();
  close();
  if (run_.writer && !gave_up()) tell(interrupted ? RunPhase::interrupted : RunPhase::failed, reason_, code_);
}

void RunEnd::adopt_outcome(int code, std::string reason) noexcept {
  code_ = code;
  reason_ = std::move(reason);
  close();
}

void RunEnd::close() noexcept {
  over_ = true;
  run_.started.form = nullptr;  // the program may add parts for another run
  // The writer has just found out whether the disk answers.
  heartbeat_.stop(gave_up() ? Duration::zero() : Heartbeat::kPatience);
  run_.book->close();
  driver_.listener().run_is_over();
}

// Sets the code and the reason.
RunPhase RunEnd::describe(const run::Exit& exit, const std::string& torn) noexcept {
  // A save that the core has given up may have become durable since.
  const bool told = !reason_.empty();
  const bool interrupted = exit.code == static_cast<int>(ExitCode::interrupted) ||
                           (exit.how == run::Ending::failed && told && run_.newest_durable() >= run_.step());
  code_ = interrupted ? run_.options.notices.exit_code_interrupted : exit.code;
  const std::string stands = text_or_out_of_memory([&] { return what_stands(run_.newest_durable()); });
  switch (exit.how) {
    case run::Ending::complete:
      return RunPhase::complete;
    case run::Ending::torn:
      log_error("{}; nothing newer is committed, {}", torn, stands);
      add_to_reason(torn);
      break;
    case run::Ending::no_step:
      log_error("{}; call it after every optimizer update", kNoStep);
      add_to_reason(kNoStep);
      break;
    case run::Ending::left_out:
      reason_ = text_or_out_of_memory([&] {
        const std::string why = reason_.empty() ? driver_.reason() : reason_;
        return why + "; no time was left to save step " + std::to_string(run_.step()) + ", " + stands;
      });
      break;
    case run::Ending::failed: {
      const std::optional<std::string> reported = run_.writer->failure();
      const std::string failure =
          reported ? *reported
                   : text_or_out_of_memory([] { return std::string("the last save did not end in time"); });
      log_error("{}; what was acknowledged before stands: {}", failure, stands);
      add_to_reason(failure);
      if (!interrupted && run_.unsavable.known()) code_ = static_cast<int>(ExitCode::usage);
      break;
    }
    default:
      break;
  }
  return interrupted ? RunPhase::interrupted : RunPhase::failed;
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

// No warning while an exception ends the program, because that is reported by itself.
void RunEnd::say_unfinished() const noexcept {
  const std::string text = text_or_out_of_memory([&] {
    return "the Checkpointer ends without finish(): nothing new is committed, and the run counts as broken "
           "off; step " +
           std::to_string(run_.step()) + " is reached, " + what_stands(run_.newest_durable());
  });
  std::uncaught_exceptions() > 0 || driver_.covered() ? log_info(text) : log_warning(text);
}

}}}  // namespace holdfast::v0_2::internal
