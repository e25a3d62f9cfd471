// Whether a commit costs the same after many others, and beside many kept files. A disk has moods of its own, so a
// raw write of as many bytes, durable in the same way, follows each commit: the drift that counts is ours beside its.
#include <algorithm>
#include <optional>
#include <span>

#include "ceiling.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

constexpr int kKeptInRow = 3;

std::vector<double> commits(Bench& bench, const std::string& what, Ours& ours, int count) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    if (i % 20 == 0) bench.progress(what, i, count);
    stop_if_interrupted();
    times.push_back(ours.save().durable);
  }
  return times;
}

double percent_more(double ratio) { return (ratio - 1) * 100; }

Row against(const char* key, const std::string& what, double last, double first,
            std::vector<double> samples) {
  return {.key = key,
          .what = what,
          .value = last,
          .text = milliseconds(last) + " against " + milliseconds(first),
          .of = "% longer",
          .ratio = percent_more(last / first),
          .samples = std::move(samples)};
}

// The commits of one series, in their order.
struct InRow {
  std::vector<double> seconds = {};

  std::vector<double> first(int count) const { return {seconds.begin(), seconds.begin() + count}; }
  std::vector<double> last(int count) const { return {seconds.end() - count, seconds.end()}; }
  // Median of the last over median of the first.
  double drift(int count) const { return median(last(count)) / median(first(count)); }
  // The same of those of each end that were drawn.
  double drift(int count, std::span<const std::size_t> drawn) const {
    std::vector<double> early;
    std::vector<double> late;
    for (const std::size_t i : drawn) {
      early.push_back(seconds[i]);
      late.push_back(seconds[seconds.size() - static_cast<std::size_t>(count) + i]);
    }
    return median(std::move(late)) / median(std::move(early));
  }
};

void add_row(Bench& bench, TrainingState& state, Section& section, int tail) {
  Ours ours(state, bench.scratch.path() / "flat-row", kKeptInRow);
  Ceiling ceiling(bench.scratch.folder("flat-raw"), ours.file_bytes());
  ceiling.choose_threads(bench.options.quick ? 1 : 3);
  InRow mine;
  InRow raw;
  const int count = bench.options.commits;
  for (int i = 0; i < count; ++i) {
    if (i % 20 == 0) bench.progress("flat, in a row", i, count);
    stop_if_interrupted();
    mine.seconds.push_back(ours.save().durable);
    raw.seconds.push_back(ceiling.write_in_row(kKeptInRow));
  }
  const std::string ends =
      std::to_string(count) + " in a row, the last " + std::to_string(tail) + " against the first";
  const auto row = [&](const char* key, const std::string& who, const InRow& series) {
    section.rows.push_back(
        against(key, who + ends, median(series.last(tail)), median(series.first(tail)), series.seconds));
    section.rows.back().interval = bootstrap(
        static_cast<std::size_t>(tail),
        [&](std::span<const std::size_t> drawn) { return percent_more(series.drift(tail, drawn)); });
  };
  row("flat.row", "", mine);
  row("flat.raw", "raw writes between them: ", raw);
  const double more = percent_more(mine.drift(tail) / raw.drift(tail));
  section.rows.push_back(
      {.key = "flat.beside_raw",
       .what = "how much more ours became than the raw write's",
       .value = more,
       .text = fixed(more, 1) + " %",
       .goal = Goal{Goal::Kind::at_most, 5},
       .interval = bootstrap(static_cast<std::size_t>(tail), [&](std::span<const std::size_t> drawn) {
         return percent_more(mine.drift(tail, drawn) / raw.drift(tail, drawn));
       })});
}

}  // namespace

void measure_flatness(Bench& bench, const StateSpec& spec) {
  std::optional<TrainingState> state(std::in_place, spec);
  const std::uint64_t each = state->bytes() + (2u << 20);
  require_room(bench.scratch.path(), 12 * each, "the flat part with " + spec.name);
  const int fits = static_cast<int>(free_bytes(bench.scratch.path()) / each) - 8;
  const int kept = std::min(bench.options.kept, fits);
  const int tail = std::min(20, bench.options.commits / 2);
  Section section{.part = "flat",
                  .state = spec.name,
                  .title = spec.name + ", " + state->words() + ": commits in a row",
                  .rows = {}};
  add_row(bench, *state, section, tail);
  std::filesystem::remove_all(bench.scratch.path() / "flat-row");
  std::filesystem::remove_all(bench.scratch.path() / "flat-raw");

  state.emplace(spec);  // a run begins at step 0
  TrainingState other(spec);
  std::optional<Ours> few(std::in_place, *state, bench.scratch.path() / "flat-few", 2);
  std::optional<Ours> many(std::in_place, other, bench.scratch.path() / "flat-many", kept);
  commits(bench, "flat, files to keep", *many, kept);
  std::vector<double> beside_few;
  std::vector<double> beside_many;
  for (int i = 0; i < tail; ++i) {
    settle(bench.scratch.path());
    beside_few.push_back(few->save().durable);
    settle(bench.scratch.path());
    beside_many.push_back(many->save().durable);
  }
  section.rows.push_back(against("flat.kept", std::to_string(kept) + " kept against 2", median(beside_many),
                                 median(beside_few), beside_many));
  section.rows.back().goal = Goal{Goal::Kind::at_most, 5};
  const Interval kept_interval = interval_of_ratio(beside_many, beside_few);
  section.rows.back().interval = {percent_more(kept_interval.low), percent_more(kept_interval.high)};
  if (kept < bench.options.kept) {
    section.rows.back().note = "the disk has no room for " + std::to_string(bench.options.kept) + " files";
  }
  bench.report.add(std::move(section));
  few.reset();
  many.reset();
  std::filesystem::remove_all(bench.scratch.path() / "flat-many");  // gigabytes that other parts may need
}

}  // namespace holdfast::bench
