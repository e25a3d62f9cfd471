// Whether a row fits: what it will take, estimated from a small batch, and what may still be taken. A process
// that finds out by trying is killed on a CPU.
//
// Errors: none. Threads: free functions; plain values.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::bench {

// Bytes that this process may still take of the machine: what is available, within the limits of the control
// groups that it is in. Infinite where nobody knows.
double free_of_machine();

// What a training takes: some for its weights, more with each sample.
struct Demand {
  double fixed = 0;        // weights, gradients, slots
  double per_sample = 0;   // activations and scratch
  std::int64_t seen = 0;   // samples of the batch that it was learnt from
  std::int64_t least = 1;  // samples that a batch must have

  double of(std::int64_t batch) const { return fixed + per_sample * static_cast<double>(batch); }
  // The largest batch in `free` bytes; 0: none.
  std::int64_t batch_in(double free) const;
};

// Why the row is left out, in words: "it needs about 31.2 GB (estimated from a batch of 2) and 15.1 GB are
// free; a batch of 96 fits: --scale 0.43". `full`: the batch at --scale 1. Empty: it fits.
std::string why_no_room(const Demand& demand, std::int64_t batch, std::int64_t full, double free);

// The same of a row that the estimate let pass and the device did not: it needs more than the `free` bytes.
// The batch that is named leaves room for an estimate that is wrong by a quarter.
std::string why_overflowed(const Demand& demand, std::int64_t batch, std::int64_t full, double free);
std::int64_t batch_after_overflow(const Demand& demand, std::int64_t batch);

}  // namespace holdfast::bench
