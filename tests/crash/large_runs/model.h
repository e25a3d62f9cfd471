// The control plane of a large run in virtual time: the product's signs of life and votes (SignTable,
// SilenceJudge, VoteCadence, ballots) over a store with the messages and costs of c10d's TCPStore, and a
// simulated network with lost hosts, slow links and hosts that stand still for a while.
//
// Errors: std::bad_alloc. Threads: one a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::test::large_runs {

struct Setting {
  int hosts = 128;
  int ranks_of_host = 8;
  Duration silence = std::chrono::seconds(6);
  Duration step = std::chrono::milliseconds(200);
  // Processor time of rank 0's store for a message, an answer, and a value in a long answer (docs/figures.md
  // says how they were measured).
  Duration message = std::chrono::microseconds(5);
  Duration answer = std::chrono::microseconds(11);
  Duration value = std::chrono::nanoseconds(100);
  Duration rank_0_stands_still = std::chrono::seconds(4);  // at most
  // Planted bug: the judges count time instead of polls.
  bool counts_time = false;
  int world_size() const { return hosts * ranks_of_host; }
};

struct Outcome {
  std::vector<int> lost;      // the ranks of the hosts that vanished
  std::vector<int> innocent;  // named though they live
  int unaware = 0;            // living ranks without a verdict at the end of a run that lost a host
  Duration named{};           // from the loss to the last living rank's verdict
  Duration stopped{};         // from the notice to the last rank's stop
  bool one_step = true;       // all stopped at the same step
  // At rank 0, while nothing happens.
  double messages = 0;  // a second
  double bytes_in = 0;
  double bytes_out = 0;
  double busy = 0;  // share of a core
};

Outcome run(const Setting& setting, std::uint64_t seed);

}  // namespace holdfast::test::large_runs
