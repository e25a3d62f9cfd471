// The parts of the bench; each answers one question. A part measures all rivals in turns, and adds a section
// to the report or says what it leaves out.
//
// Errors: Error; a part that fails ends the bench. Threads: the main thread.
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
  std::string output;        // name of the output files, without extension
  std::string child_memory;  // internal: measure and print the memory of saving this state
  bool wants(const std::string& part) const;
};

struct Bench {
  const Options& options;
  Scratch& scratch;
  Report& report;
  bool python = false;  // the Python peers are installed

  // Prints "commit, resnet50: 3/9" to standard error.
  void progress(const std::string& what, int done, int all) const;
};

// Durable writes compared with the ceiling and the peers, and the time that the training thread waits.
void measure_commit(Bench& bench, const StateSpec& spec);
// One file written by two ranks, compared with one rank.
void measure_shared(Bench& bench, const StateSpec& spec);
// CPU time that a save takes from two busy threads.
void measure_stolen(Bench& bench, const StateSpec& spec);
// A verified restore compared with a raw read.
void measure_restore(Bench& bench, const StateSpec& spec);
// Many commits in a row, with few and with many files kept.
void measure_flatness(Bench& bench, const StateSpec& spec);
// Host memory of saving, beyond the state. The child measures itself.
void measure_memory(Bench& bench, const StateSpec& spec);
int run_memory_child(const Options& options);
// Training time that a save costs.
void measure_training(Bench& bench, const StateSpec& spec);
// What staging is made of, on a GPU where there is one.
void measure_split(Bench& bench, const StateSpec& spec);
// The same as measure_training(), and the time that the training thread waits, on a GPU.
void measure_gpu(Bench& bench);

}  // namespace holdfast::bench
