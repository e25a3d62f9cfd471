#include "holdfast/cli/report/run_curves.h"

#include <algorithm>
#include <string_view>

#include "holdfast/base/seconds.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/ledger/ledger_lines.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The first member of a line tells its kind, so most lines are never parsed.
constexpr std::string_view kMetric = R"({"event":"metric")";

class Reading {
 public:
  Reading(RunCurves& curves, std::int64_t from, std::int64_t to) : curves_(curves), from_(from), to_(to) {}

  void line(std::string_view text) {
    if (text.starts_with(kLossesLine)) {
      for (const auto& [step, loss] : losses_in({std::string(text)})) {
        if (counts(step)) curves_.loss.add(static_cast<double>(step), loss);
      }
    } else if (text.starts_with(kMetric)) {
      metric(LedgerMembers(text));
    }
  }

 private:
  // The step that it resumed from belongs to the life before.
  bool counts(std::int64_t step) const { return step > from_ && step <= to_; }

  void metric(const LedgerMembers& line) {
    const auto step = line.integer("step");
    const std::string name = line.text("name");
    const auto number = parse_double(line.text("value"));
    // An evaluation of the step that it resumed from came again, or was its first.
    if (!step || name.empty() || !number || !(counts(*step) || *step == from_)) return;
    const std::string shown = printable(name, 100);
    auto found = curves_.measured.find(shown);
    if (found == curves_.measured.end()) {
      // A program may report its values under ever new names.
      if (curves_.measured.size() >= RunCurves::kMostMeasured) return;
      const Curve curve(shown, static_cast<double>(curves_.first), static_cast<double>(curves_.last));
      found = curves_.measured.emplace(shown, curve).first;
    }
    found->second.add(static_cast<double>(*step), *number);
  }

  RunCurves& curves_;
  std::int64_t from_;
  std::int64_t to_;
};

void add_speed(const LedgerLife& life, std::int64_t last, Curve& speed) {
  for (std::size_t i = 1; i < life.marks.size(); ++i) {
    const LedgerMark& before = life.marks[i - 1];
    const LedgerMark& now = life.marks[i];
    const double time = in_seconds(now.up - before.up);
    // Marks at the same step tell of a wait, not of the speed of training.
    if (now.step <= before.step || time <= 0 || now.step > last) continue;
    speed.add(static_cast<double>(now.step), static_cast<double>(now.step - before.step) / time);
  }
}

void add_saves(const LedgerLife& life, std::int64_t last, RunCurves& curves) {
  for (const LedgerCommit& commit : life.commits) {
    if (commit.step > last) continue;
    curves.save.add(static_cast<double>(commit.step), in_seconds(commit.took));
    curves.waited.add(static_cast<double>(commit.step), in_seconds(commit.blocked));
  }
}

}  // namespace

RunCurves curves_of(Directory& run_directory, const std::vector<LedgerLife>& lives,
                    const RunAccount& account) {
  std::int64_t first = account.lives.empty() ? 0 : account.lives.front().from_step;
  std::int64_t last = 0;
  for (const LifeAccount& life : account.lives) {
    first = std::min(first, life.from_step);
    last = std::max(last, life.last_step);
  }
  const auto curve = [&](const char* name) {
    return Curve(name, static_cast<double>(first), static_cast<double>(last));
  };
  RunCurves curves{.first = first,
                   .last = last,
                   .loss = curve("training loss"),
                   .measured = {},
                   .speed = curve("steps per second"),
                   .save = curve("write and commit"),
                   .waited = curve("training waited"),
                   .cuts = {}};
  for (const LedgerLife& life : lives) {
    const auto found = std::find_if(account.lives.begin(), account.lives.end(),
                                    [&](const LifeAccount& one) { return one.attempt == life.attempt; });
    // Attempts that never came to training have no account.
    if (found == account.lives.end()) continue;
    // Steps that were computed again show as the next life computed them.
    const std::int64_t to = std::next(found) == account.lives.end() ? found->last_step : found->kept_step;
    if (found != account.lives.begin()) {
      curves.cuts.push_back(
          {static_cast<double>(found->from_step), "attempt " + std::to_string(life.attempt)});
    }
    add_speed(life, last, curves.speed);
    add_saves(life, last, curves);
    if (const auto ledger = run_directory.open(ledger_name(life.attempt), OpenMode::read)) {
      Reading reading(curves, found->from_step, to);
      LedgerLines(*ledger).each([&](std::string_view line) { reading.line(line); });
    }
  }
  return curves;
}

}}  // namespace holdfast::v0_2
