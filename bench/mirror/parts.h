// The parts of the bench, and the rows that they make.
//
// Errors: Error. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Options {
  std::filesystem::path directory = ".";  // on the disk in question
  std::uint64_t bytes = 188'000'000;      // of the checkpoint in copy and training
  std::uint64_t large = 2'000'000'000;    // of the state in memory and gain
  std::vector<double> limits = {0, 100, 500};
  int repetitions = 5;
  int pairs = 6;
  double window = 6;  // seconds of training
  double gain = 60;   // seconds of a run in the part gain
  bool rclone = true;
  std::vector<std::string> parts = {"copy", "memory", "training", "gain"};
  std::string output;  // names without .json and .svg
};

struct Row {
  std::string key;   // "copy.directory.100"
  std::string what;  // for people
  double value = 0;
  std::string unit;  // "of cp + fsync"; "MB"; "%"; "s"
  std::optional<double> at_least = {};
  std::optional<double> at_most = {};
  std::vector<double> samples = {};
  std::string note = {};
  std::string verdict() const;  // empty without a goal
};

class Report {
 public:
  void section(const std::string& title);
  void add(Row row);  // prints it
  void leave_out(const std::string& what, const std::string& why);
  nlohmann::ordered_json json() const;
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::string>> left_out_;
};

void measure_copies(const Options& options, Report& report);
void measure_memory(const Options& options, Report& report);
void measure_training(const Options& options, Report& report);
void measure_gain(const Options& options, Report& report);
// Bars of the rows that measure_gain() made.
std::string chart_of_gain(const Options& options, const Report& report);

// Reads and verifies every byte of a checkpoint, once: what a copy's processor time is compared with.
int verify_once(const std::string& file);

}  // namespace holdfast::bench
