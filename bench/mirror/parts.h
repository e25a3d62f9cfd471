// The parts of the bench.
//
// Errors: Error. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report.h"

namespace holdfast::bench {

struct Options {
  std::filesystem::path directory = ".";  // on the disk in question
  std::uint64_t bytes = 188'000'000;      // of the checkpoint in copy and training
  std::uint64_t large = 2'000'000'000;    // of the state in memory and gain
  std::vector<double> limits = {0, 100, 500};
  int repetitions = 5;
  int pairs = 6;
  double window = 6;  // seconds of training
  double gain = 240;  // seconds of a run in the part gain
  bool rclone = true;
  std::vector<std::string> parts = {"copy", "memory", "training", "gain"};
  std::string output;  // names without .json and .svg
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
