#include "holdfast/cli/report/status_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/run/announced_ends.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

// Longer times are no times: a run without an end in sight, or a record that something else wrote.
constexpr Duration kAHundredYears = std::chrono::hours(24) * 365 * 100;

// The clocks of two machines differ, so an age may come out negative.
double to_seconds(Duration time) {
  return std::round(std::chrono::duration<double>(std::max(time, Duration::zero())).count() * 1000) / 1000;
}
Duration from_ms(std::int64_t ms) {
  return std::chrono::milliseconds(
      std::clamp<std::int64_t>(ms, 0, kAHundredYears / std::chrono::milliseconds(1)));
}

// The record is up to this old, so a shorter time would come from its age.
constexpr Duration kLeastUnsaved = std::chrono::seconds(10);

Duration since(WallTime when, WallTime now) { return std::chrono::duration_cast<Duration>(now - when); }

Json number(std::optional<double> value) { return value ? json_number(*value) : Json(nullptr); }

class Report {
 public:
  Report(const RunView& view, const StatusLimits& limits) : view_(view), limits_(limits) {}

  Json make() {
    judge();
    Json report{
        {"schema", kStatusSchema}, {"directory", view_.directory},         {"time", format_utc(view_.now)},
        {"verdict", verdict_},     {"exit_code", static_cast<int>(code_)}, {"phase", phase_},
        {"reason", reason_}};
    put_attempt(report);
    put_training(report);
    put_saves(report);
    report["notices"] = notices();
    report["blind"] = blind_sources();
    put_volume(report);
    put_home(report);
    put_standby(report);
    if (!view_.stall.empty()) report["stall"] = view_.stall;
    return report;
  }

 private:
  const RunState* state() const { return view_.newest.state ? &*view_.newest.state : nullptr; }
  const RunProgress* progress() const { return view_.progress ? &*view_.progress : nullptr; }

  void say(std::string verdict, ExitCode code, std::string reason) {
    verdict_ = std::move(verdict);
    code_ = code;
    reason_ = std::move(reason);
  }

  // Age of the newest sign of life; nullopt: unknown.
  std::optional<Duration> silence() const {
    const auto sign = view_.last_sign();
    return sign ? std::optional(std::max(since(*sign, view_.now), Duration::zero())) : std::nullopt;
  }
  // How long the step has stood still; nullopt: unknown, or it need not move.
  std::optional<Duration> standstill() const {
    if (view_.ended() || progress() == nullptr || progress()->phase != TrainingPhase::training) {
      return std::nullopt;
    }
    const WallTime beat{std::chrono::milliseconds(progress()->unix_ms)};
    // What has passed since the record counts as well.
    return from_ms(progress()->still_ms) + std::max(since(beat, view_.now), Duration::zero());
  }

  void judge() {
    if (view_.newest.attempt == 0) {
      phase_ = "none";
      if (!view_.refusal.empty()) return refuse();
      return say("untrained", ExitCode::difference, "nobody has ever trained here");
    }
    // An end that was recorded counts before all signs of life: they may be the last ones of the same
    // process.
    view_.ended() ? judge_end() : judge_life();
  }

  void refuse() { say("refused", ExitCode::refused, "the next start would be refused: " + view_.refusal); }

  void judge_end() {
    const bool told = state() != nullptr && is_end(state()->phase);
    // RUN_STATE.json first. A run whose volume was full has at least the last line of its ledger.
    const std::string how = told ? word_of(state()->phase) : view_.life.end->phase;
    const std::int64_t code = told ? state()->exit_code : view_.life.end->exit_code;
    const std::string why = told ? state()->reason : view_.life.end->reason;
    phase_ = how;
    if (how == word_of(RunPhase::complete)) return say("complete", ExitCode::complete, why);
    if (code == static_cast<int>(ExitCode::refused)) {
      phase_ = "refused";
      return say("refused", ExitCode::refused, why);
    }
    // Before the end's own word: a new start does not help, whatever ended this attempt.
    if (!view_.refusal.empty()) return refuse();
    if (how == word_of(RunPhase::interrupted)) {
      return say("interrupted", ExitCode::interrupted, why);
    }
    say(how, ExitCode::difference,
        "it ended with exit code " + std::to_string(code) + (why.empty() ? "" : ": " + why));
  }

  void judge_life() {
    const bool begun = view_.life.started || (state() != nullptr && state()->phase == RunPhase::running);
    phase_ = !begun                  ? "starting"
             : progress() != nullptr ? word_of(progress()->phase)
             : view_.life.paused()   ? "pausing"
                                     : "training";
    const auto silent = silence();
    const std::string heard =
        silent ? "; the last sign of life is " + format_duration(*silent) + " old" : std::string();
    if (view_.process == RunView::Process::gone) {
      if (!view_.refusal.empty()) return refuse();
      return say("dead", ExitCode::difference,
                 "process " + std::to_string(view_.newest.claimant.process.pid) +
                     " is gone, and has not said how it ended" + heard);
    }
    // Before the stall: old records of a silent process tell nothing about its steps.
    if (silent && *silent > limits_.max_age) {
      return say("silent", ExitCode::difference,
                 "no sign of life for " + format_duration(*silent) +
                     (view_.process == RunView::Process::runs
                          ? ", although its process runs: it is stopped, or the volume hangs"
                          : ": its machine or process is gone, or the volume hangs there"));
    }
    const auto still = standstill();
    if (still && *still > limits_.max_age) {
      return say("stalled", ExitCode::difference,
                 "the process lives, but has taken no step for " + format_duration(*still));
    }
    if (const auto most = most_unsaved(); most && risk() > *most) {
      return say("unsaved", ExitCode::difference,
                 format_duration(risk()) + " of work is in no checkpoint" +
                     (progress() != nullptr && !progress()->failure.empty() ? ": " + progress()->failure
                                                                            : std::string()));
    }
    say("healthy", ExitCode::complete, {});
  }

  // Without a limit by the caller, saves that fail are a reason to look after three intervals. A single one
  // that failed is made up for by the next.
  std::optional<Duration> most_unsaved() const {
    if (limits_.max_unsaved) {
      return *limits_.max_unsaved > Duration::zero() ? limits_.max_unsaved : std::nullopt;
    }
    if (progress() == nullptr || progress()->failure.empty() || progress()->save_interval_ms < 0) {
      return std::nullopt;
    }
    return std::max(3 * std::min(from_ms(progress()->save_interval_ms), kAHundredYears / 3), kLeastUnsaved);
  }

  std::int64_t step() const {
    const std::int64_t told = state() != nullptr ? state()->step : 0;
    if (view_.ended()) return std::max(told, view_.life.last_step);
    return std::max(
        {told, view_.life.started ? view_.life.last_step : 0, progress() != nullptr ? progress()->step : 0});
  }
  std::int64_t durable_step() const {
    const std::int64_t told = state() != nullptr ? state()->durable_step : -1;
    return std::max({told, view_.life.durable_step, progress() != nullptr ? progress()->durable_step : -1});
  }
  // Work that no checkpoint holds, as time.
  Duration risk() const {
    if (view_.ended() || step() <= durable_step()) return Duration::zero();
    // Without a record, all time since the newest checkpoint may be at risk.
    if (progress() == nullptr) {
      return view_.durable_since ? std::max(since(*view_.durable_since, view_.now), Duration::zero())
                                 : Duration::zero();
    }
    // Training goes on after the record was written, so that time is at risk as well.
    return from_ms(progress()->risk_ms) + silence().value_or(Duration::zero());
  }

  void put_attempt(Json& report) const {
    if (view_.newest.attempt == 0) return;
    const Claimant& claimant = view_.newest.claimant;
    report["attempt"] = view_.newest.attempt;
    report["restarts"] = view_.restarts;
    const std::string host = !claimant.host.empty()     ? claimant.host
                             : !view_.life.host.empty() ? view_.life.host
                             : state() != nullptr       ? state()->host
                                                        : std::string();
    report["host"] = host.empty() ? Json(nullptr) : Json(host);
    report["process"] = view_.process == RunView::Process::runs   ? "runs"
                        : view_.process == RunView::Process::gone ? "gone"
                                                                  : "unknown";
    const auto silent = silence();
    report["last_sign_s"] = silent ? Json(to_seconds(*silent)) : Json(nullptr);
    if (view_.life.started) {
      const Duration before = view_.life.startup;
      const Duration trained =
          view_.ended() ? view_.life.last_up - view_.life.start_up : since(view_.life.start, view_.now);
      report["up_s"] = to_seconds(before + std::max(trained, Duration::zero()));
    }
  }

  void put_training(Json& report) const {
    if (view_.newest.attempt == 0) return;
    report["step"] = step();
    const bool live = progress() != nullptr && !view_.ended();
    const std::int64_t last = progress() != nullptr ? progress()->last_step : -1;
    report["last_step"] = last >= 0 ? Json(last) : Json(nullptr);
    const auto rate = live ? progress()->steps_per_second : std::nullopt;
    report["steps_per_second"] = number(rate);
    const double left =
        last > step() && rate && *rate > 0 ? std::round(static_cast<double>(last - step()) / *rate) : -1;
    const bool known = left >= 0 && left <= std::chrono::duration<double>(kAHundredYears).count();
    report["time_left_s"] = known ? Json(left) : Json(nullptr);
    // After the end only if it is that step's.
    const bool fresh = progress() != nullptr && (live || progress()->step == step());
    report["loss"] = fresh ? number(progress()->loss) : Json(nullptr);
    const auto still = standstill();
    report["still_s"] = still ? Json(to_seconds(*still)) : Json(nullptr);
  }

  void put_saves(Json& report) const {
    if (view_.newest.attempt == 0) return;
    Json durable{{"step", nullptr}, {"age_s", nullptr}, {"checkpoint", nullptr}};
    if (durable_step() >= 0) {
      durable["step"] = durable_step();
      if (view_.durable_since) durable["age_s"] = to_seconds(since(*view_.durable_since, view_.now));
      if (state() != nullptr && !state()->checkpoint.empty()) durable["checkpoint"] = state()->checkpoint;
    }
    report["durable"] = durable;
    const bool known = progress() != nullptr || view_.durable_since || step() <= durable_step();
    // A durable step of -1 means that nothing is saved yet: all steps are at risk.
    report["risk"] = {
        {"steps", std::max<std::int64_t>(step() - std::max<std::int64_t>(durable_step(), 0), 0)},
        {"s", known ? Json(to_seconds(risk())) : Json(nullptr)}};
    const bool live = progress() != nullptr && !view_.ended();
    const auto silent = silence().value_or(Duration::zero());
    Json next{{"in_s", nullptr}, {"at_step", nullptr}};
    if (live && progress()->next_save_ms >= 0)
      // The record counts from the moment when it was written.
      next["in_s"] = to_seconds(from_ms(progress()->next_save_ms) - silent);
    if (live && progress()->next_save_step > step()) next["at_step"] = progress()->next_save_step;
    report["next_save"] = next;
    Json saves{{"count", static_cast<std::int64_t>(view_.life.commits.size())},
               {"last_bytes", nullptr},
               {"last_s", nullptr},
               {"writing_s", nullptr},
               {"interval_s", nullptr},
               {"failure", nullptr}};
    if (!view_.life.commits.empty()) {
      const LedgerCommit& newest = view_.life.commits.back();
      saves["last_bytes"] = newest.bytes;
      saves["last_s"] = to_seconds(newest.took);
    }
    if (progress() != nullptr) {
      // Both may lag: the ledger may have lost lines, and the record is up to 10 s old.
      saves["count"] = std::max<std::int64_t>(progress()->saves, saves["count"].get<std::int64_t>());
      if (live && progress()->writing_ms >= 0)
        saves["writing_s"] = to_seconds(from_ms(progress()->writing_ms));
      if (live && progress()->save_interval_ms >= 0)
        saves["interval_s"] = to_seconds(from_ms(progress()->save_interval_ms));
      if (live && !progress()->failure.empty()) saves["failure"] = progress()->failure;
    }
    report["saves"] = saves;
  }

  // What stands now: the newest notice of each source that was not withdrawn or outlived.
  Json notices() const {
    std::map<std::string, const LedgerNotice*> standing;
    for (const LedgerNotice& notice : view_.life.notices) {
      if (notice.kind == "withdrawn" || notice.kind == "thawed") {
        standing.erase(notice.source);
      } else if (notice.kind != "checkpoint") {
        // A request for a checkpoint announces nothing that could stand.
        standing[notice.source] = &notice;
      }
    }
    Json list = Json::array();
    for (const auto& [source, notice] : standing) {
      const Duration age = since(notice->when, view_.now);
      if (view_.ended() || (notice->left && age > *notice->left + kAliveAfter)) continue;
      if (notice->kind == "at-risk" && age > kRiskLasts) continue;
      list.push_back({{"source", source},
                      {"kind", notice->kind},
                      {"text", notice->text},
                      {"left_s", notice->left ? Json(to_seconds(*notice->left - age)) : Json(nullptr)}});
    }
    return list;
  }

  Json blind_sources() const {
    Json list = Json::array();
    if (view_.ended()) return list;
    for (const auto& [name, figures] : view_.life.sources) {
      if (figures.blind_now < kBlindAfter) continue;
      list.push_back({{"source", name}, {"blind_s", to_seconds(figures.blind_now)}, {"why", figures.why}});
    }
    return list;
  }

  void put_volume(Json& report) const {
    Json volume{{"free_bytes", nullptr}, {"total_bytes", nullptr}, {"write_bytes_per_s", nullptr}};
    if (view_.volume) {
      volume["free_bytes"] = view_.volume->free;
      volume["total_bytes"] = view_.volume->total;
    }
    if (!view_.life.commits.empty()) {
      const LedgerCommit& newest = view_.life.commits.back();
      const double took = std::chrono::duration<double>(newest.took).count();
      if (took > 0) volume["write_bytes_per_s"] = std::round(static_cast<double>(newest.bytes) / took);
    }
    report["volume"] = volume;
  }

  // What a second place holds, verified. Work at risk is what is not home.
  void put_home(Json& report) const {
    if (!view_.home) return;
    const HomeRecord& home = *view_.home;
    const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
    Json told{{"place", home.home},
              {"step", nullptr},
              {"checkpoint", nullptr},
              {"age_s", nullptr},
              {"copies", home.copies}};
    if (home.newest) {
      told["step"] = home.newest->step;
      told["checkpoint"] = checkpoint_name(*home.newest);
    }
    if (const auto when = parse_utc(home.newest_since)) told["age_s"] = to_seconds(since(*when, view_.now));
    const std::int64_t step_home = home.newest ? home.newest->step : 0;
    told["risk_steps"] = view_.newest.attempt == 0 ? 0 : std::max<std::int64_t>(step() - step_home, 0);
    const bool live = progress() != nullptr && !view_.ended() && progress()->home_risk_ms >= 0;
    told["risk_s"] =
        live ? Json(to_seconds(from_ms(progress()->home_risk_ms) + silence().value_or(Duration::zero())))
             : Json(nullptr);
    told["way_s"] = home.took_ms > 0 ? Json(to_seconds(from_ms(home.took_ms))) : Json(nullptr);
    told["copying"] = text(home.copying);
    told["failure"] = text(home.failure);
    const auto failing = parse_utc(home.failing_since);
    told["failing_s"] = failing ? Json(to_seconds(since(*failing, view_.now))) : Json(nullptr);
    told["superseded"] = home.superseded;
    report["home"] = told;
  }

  // `age_s`: of its last sign. It renews that every two seconds.
  void put_standby(Json& report) const {
    if (!view_.standby) return;
    const StandbySign& standby = *view_.standby;
    const auto age = [&](std::int64_t ms) {
      return to_seconds(since(WallTime(std::chrono::milliseconds(ms)), view_.now));
    };
    const bool ready = !standby.checkpoint.empty();
    report["standby"] = {{"host", standby.host},
                         {"step", ready ? Json(standby.step) : Json(nullptr)},
                         {"checkpoint", ready ? Json(standby.checkpoint) : Json(nullptr)},
                         {"waits_s", age(standby.since_ms)},
                         {"age_s", age(standby.unix_ms)}};
  }

  const RunView& view_;
  const StatusLimits& limits_;
  std::string verdict_;
  std::string phase_;
  std::string reason_;
  ExitCode code_ = ExitCode::complete;
};

}  // namespace

nlohmann::ordered_json status_report(const RunView& view, const StatusLimits& limits) {
  return Report(view, limits).make();
}

}}  // namespace holdfast::v0_2
