// The text of `training.csv`: its columns, and one row a step.
//
//   epoch,step,samples,time,lr,loss,accuracy,attempt,val_loss,val_accuracy
//   0,16,256,1795441454.125,0.05,2.302585124969482,,3,2.31,0.11
//
// `epoch` counts from 0, `step` from 1. `samples`: trained on since the run began. `time`: seconds since 1970
// UTC. `attempt`: number of the process life. `val_loss` and `val_accuracy` belong to the evaluated step;
// they come last because they are added later. A value that was not measured is empty. Numbers are the
// shortest decimals that give the same double, or nan, inf, -inf. pandas.read_csv reads the file; before
// pandas 3 it needs float_precision="round_trip" to keep every bit.
//
// Errors: none. Threads: pure functions, without allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::string_view kCsvHeader =
    "epoch,step,samples,time,lr,loss,accuracy,attempt,val_loss,val_accuracy";
inline constexpr std::string_view kCsvNoEvaluation = ",";  // both columns are empty
inline constexpr std::size_t kCsvRowSize = 320;            // more than the longest row

// Writes the columns that are known when a step ends, up to the comma after `attempt`. All writers
// need a `buffer` of at least kCsvRowSize.
std::string_view write_csv_step(const StepEvent& event, WallTime time, std::uint64_t attempt,
                                std::span<char> buffer);
// Writes a row for an evaluation at a step that has none.
std::string_view write_csv_step(const EvaluationEvent& event, WallTime time, std::uint64_t attempt,
                                std::span<char> buffer);
// Writes the last two columns.
std::string_view write_csv_evaluation(const EvaluationEvent& event, std::span<char> buffer);

struct CsvRow {
  std::int64_t step = 0;
  std::uint64_t attempt = 0;
  std::string_view fixed;  // the part of the line up to the comma after `attempt`
  std::string_view evaluation = kCsvNoEvaluation;
  bool whole = false;  // false: the last two columns were malformed and count as empty
};
// Parses a line without its newline. nullopt unless the columns up to `attempt` are well-formed.
std::optional<CsvRow> parse_csv_row(std::string_view line);

}}  // namespace holdfast::v0_2
