#include "holdfast/ledger/save_figures.h"

#include <algorithm>

#include "holdfast/base/log.h"
#include "holdfast/base/seconds.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string share_of(Duration part, Duration whole) {
  const double percent = whole > Duration::zero() ? 100 * in_seconds(part) / in_seconds(whole) : 0;
  // Three digits for small shares, because the promise is one of 0.5 %.
  return format_log(percent < 1 ? "{:.3f} %" : "{:.1f} %", {percent});
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return format_count(count) + ' ' + (count == 1 ? one : many);
}

std::string beside_text(const RunFigures& figures) {
  if (!figures.beside) return "too few steps to tell what the writes beside them cost";
  const auto& [windows, lost, uncertainty] = *figures.beside;
  // Smaller than its own uncertainty: any number would be an accident of this run.
  if (lost <= uncertainty) {
    return "steps beside a write lost nothing measurable (less than " +
           format_duration(std::max(lost, Duration::zero()) + uncertainty) + ")";
  }
  return "steps beside a write lost " + format_duration(lost) + " (" + share_of(lost, figures.elapsed) +
         ", give or take " + format_duration(uncertainty) + ")";
}

}  // namespace

std::optional<Duration> RunFigures::lost() const {
  if (!beside) return std::nullopt;
  // A negative loss is noise, and training did not gain by a save.
  return blocked + std::max(beside->lost, Duration::zero());
}

std::string to_text(const SaveFigures& figures) {
  const Duration took = figures.write + figures.commit;
  return format_bytes(figures.bytes) + " in " + format_duration(took) + " (" +
         format_byte_rate(figures.bytes, took) + "), training waited " + format_duration(figures.blocked) +
         ", " + format_duration(figures.risk_time) + " of work (" +
         counted(figures.risk_steps, "step", "steps") + ") was at risk";
}

std::string to_text(const RunFigures& figures) {
  std::string text = counted(figures.durable, "save", "saves") + ", " + format_bytes(figures.bytes);
  if (figures.failed > 0) text += ", " + format_count(figures.failed) + " failed";
  text += "; training waited " + format_duration(figures.blocked) + " in all (" +
          share_of(figures.blocked, figures.elapsed) + "), " + beside_text(figures);
  text += "; at most " + format_duration(figures.most_risk_time) + " of work was at risk";
  if (!figures.home) return text;
  if (figures.home->step < 0) return text + "; nothing is home yet";
  text += "; step " + format_count(figures.home->step) + " is home";
  if (figures.home->risk_steps == 0) return text;
  return text + ", " + counted(figures.home->risk_steps, "newer step is", "newer steps are") + " not";
}

std::string to_json_members(const SaveFigures& figures) {
  std::string text;
  const auto member = [&](const char* name, const std::string& value) {
    text += (text.empty() ? "\"" : ",\"") + std::string(name) + "\":" + value;
  };
  const auto time = [&](const char* name, Duration value) {
    member(name, format_log("{:.3f}", {in_seconds(value) * 1e3}));
  };
  member("bytes", std::to_string(figures.bytes));
  time("blocked_ms", figures.blocked);
  time("staging_ms", figures.staging);
  time("queued_ms", figures.queued);
  time("write_ms", figures.write);
  time("commit_ms", figures.commit);
  member("risk_steps", std::to_string(figures.risk_steps));
  time("risk_ms", figures.risk_time);
  return text;
}

void put_figures(RunState& state, const RunFigures& figures) {
  const auto whole = [](Duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  state.saves = figures.durable;
  state.saved_bytes = figures.bytes;
  state.elapsed_ms = whole(figures.elapsed);
  state.waited_ms = whole(figures.blocked);
  state.most_risk_ms = whole(figures.most_risk_time);
  if (figures.home) state.home_step = figures.home->step;
}

}}  // namespace holdfast::v0_2
