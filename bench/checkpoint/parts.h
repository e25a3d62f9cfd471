// The parts of the bench, each one question of its own. Each measures with its rivals taking turns, and adds
// a section to the report, or says what it leaves out.
//
// Errors: as Error; a part that fails ends the bench. Threads: the main thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report.h"
#include "training_state.h"
#include "volume.h"

namespace holdfast::bench {

struct Options {
  std::filesystem::path directory = ".";
  std::vector<std::string> states;
  std::vector<std::string> parts;
  int repetitions = 9;
  int windows = 12;
  int window_steps = 5;
  int commits = 200;
  int kept = 50;
  bool peers = true;
  bool quick = false;
  std::string output;        // the files' name without ending
  std::string child_memory;  // internal: measure the memory of saving this state, and say it
  bool wants(const std::string& part) const;
};

struct Bench {
  const Options& options;
  Scratch& scratch;
  Report& report;
  bool python = false;  // the Python peers can be used

  // "commit, resnet50: 3/9", on standard error.
  void progress(const std::string& what, int done, int all) const;
};

// Durable writes against the ceiling and the peers; what the training thread is blocked for.
void measure_commit(Bench& bench, const StateSpec& spec);
// One file written by two ranks against the same by one.
void measure_shared(Bench& bench, const StateSpec& spec);
// CPU taken from two busy threads.
void measure_stolen(Bench& bench, const StateSpec& spec);
// Verified restore against a raw read.
void measure_restore(Bench& bench, const StateSpec& spec);
// Many commits in a row, few and many files kept.
void measure_flatness(Bench& bench, const StateSpec& spec);
// Host memory that saving takes beside the state; the child measures itself.
void measure_memory(Bench& bench, const StateSpec& spec);
int run_memory_child(const Options& options);
// Training time that a save really costs.
void measure_training(Bench& bench, const StateSpec& spec);
// The same and the blocked time on a GPU.
void measure_gpu(Bench& bench);

}  // namespace holdfast::bench
