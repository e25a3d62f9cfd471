// The file of experiments that `holdfast sweep` reads: a line a run, each an object of names and values. Run
// N of the file (from 0) stands in line N + 1.
//
//   {"name": "lr03", "lr": 0.3, "seed": 1}
//   const SweepFile file = read_sweep("sweep.jsonl");
//   fill_in("--lr={lr}", file.runs[0], "/mnt/ckpt/lr03");   // "--lr=0.3"
//
// A value is a text, a number or a boolean. A number keeps the digits of the file.
// Errors: UsageError with the number of the line. Threads: plain values.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct SweepRun {
  std::string place;                          // "sweep.jsonl, line 3", for messages
  std::string name;                           // of its run directory; unique in the file
  std::map<std::string, std::string> values;  // `name` included
};

struct SweepFile {
  std::filesystem::path path;
  std::vector<SweepRun> runs;  // at least one
};

SweepFile read_sweep(const std::filesystem::path& path);

// Replaces {lr} by the run's value of that name, and {run_dir} by `run_directory`; {{ and }} are braces.
std::string fill_in(const std::string& text, const SweepRun& run, const std::filesystem::path& run_directory);

}}  // namespace holdfast::v0_2
