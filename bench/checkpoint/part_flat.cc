// Whether a commit costs the same after many others, and beside many kept files.
#include <algorithm>
#include <optional>

#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

std::vector<double> commits(Bench& bench, const std::string& what, Ours& ours, int count) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    if (i % 20 == 0) bench.progress(what, i, count);
    stop_if_interrupted();
    times.push_back(ours.save().durable);
  }
  return times;
}

Row against(const char* key, const std::string& what, double last, double first,
            std::vector<double> samples) {
  return {.key = key,
          .what = what,
          .value = last,
          .text = milliseconds(last) + " against " + milliseconds(first),
          .of = "times as long",
          .ratio = last / first,
          .goal = Goal{Goal::Kind::at_most, 1.05},
          .samples = std::move(samples)};
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
  {
    Ours ours(*state, bench.scratch.path() / "flat-row", 3);
    const std::vector<double> row = commits(bench, "flat, in a row", ours, bench.options.commits);
    const double first = median({row.begin(), row.begin() + tail});
    const double last = median({row.end() - tail, row.end()});
    section.rows.push_back(against(
        "flat.row",
        std::to_string(row.size()) + " in a row, the last " + std::to_string(tail) + " against the first",
        last, first, row));
  }
  std::filesystem::remove_all(bench.scratch.path() / "flat-row");

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
  if (kept < bench.options.kept) {
    section.rows.back().note = "the disk has no room for " + std::to_string(bench.options.kept) + " files";
  }
  bench.report.add(std::move(section));
  few.reset();
  many.reset();
  std::filesystem::remove_all(bench.scratch.path() / "flat-many");  // gigabytes that other parts may need
}

}  // namespace holdfast::bench
