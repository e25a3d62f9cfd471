// What `holdfast status --all` says about the runs in the folders of one directory: one JSON object, which
// docs/sweeps.md documents. Its screen and its exit code are made from it.
//
// A folder in which nobody has ever trained is no run.
// Errors: IoError if the directory cannot be read; a run that cannot be read is a row that says so. Threads:
// pure. Waits for the volume, possibly for ever.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/cli/report/status_report.h"

namespace holdfast { inline namespace v0_2 {

// Which way a metric gets better, and by which the rows are sorted; an empty name: by the runs' names.
struct SortBy {
  std::string metric;
  bool lower_first = false;
};
// "test_accuracy", "f1:max". Without a direction that of lower_is_better(). Throws UsageError.
SortBy parse_sort(const std::string& text);
// By the name, because a metric has no unit: a loss, an error, a perplexity or a time.
bool lower_is_better(const std::string& metric);

// Folders of `root` by name, without hidden ones and lost+found.
std::vector<std::string> folders_in(const std::filesystem::path& root);

nlohmann::ordered_json fleet_report(const std::filesystem::path& root, const StatusLimits& limits,
                                    const SortBy& sort);
// The same as a table: the columns' names, a row a run, and a last row that adds up. Requires runs.
struct FleetTable {
  std::vector<std::string> head;  // of these, the first two are words and the others figures
  std::vector<std::vector<std::string>> rows;
};
FleetTable fleet_table(const nlohmann::ordered_json& report);
std::vector<std::string> fleet_screen(const nlohmann::ordered_json& report);
// "6 runs: 4 healthy, 2 complete; step 1,200 of 6,000; 12.5 steps/s"
std::string fleet_line(const nlohmann::ordered_json& report);
// No row can change any more by itself: all are complete or refused.
bool fleet_is_final(const nlohmann::ordered_json& report);

}}  // namespace holdfast::v0_2
