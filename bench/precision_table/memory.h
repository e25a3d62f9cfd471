// Predicts whether a row fits: the memory that it needs, estimated from a small batch, and the free memory.
// On a CPU trying it out would get the process killed.
//
// Errors: none. Threads: free functions; plain values.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::bench {

// Bytes that this process may still use: the machine's available memory, within the limits of its control
// groups. Infinite if unknown.
double free_of_machine();

// Memory of a training: a fixed part and a part per sample.
struct Demand {
  double fixed = 0;        // weights, gradients, slots
  double per_sample = 0;   // activations and scratch
  std::int64_t seen = 0;   // batch size of the estimate
  std::int64_t least = 1;  // smallest valid batch

  double of(std::int64_t batch) const { return fixed + per_sample * static_cast<double>(batch); }
  // The largest batch that fits into `free` bytes; 0: none.
  std::int64_t batch_in(double free) const;
};

// The reason why a row is left out: "it needs about 31.2 GB (estimated from a batch of 2) and 15.1 GB are
// free; a batch of 96 fits: --scale 0.43". `full`: the batch at --scale 1. Empty: it fits.
std::string why_no_room(const Demand& demand, std::int64_t batch, std::int64_t full, double free);

// The reason for a row that passed the estimate and did not fit: it needs more than `free` bytes. The
// suggested batch allows for an estimate that is wrong by a quarter.
std::string why_overflowed(const Demand& demand, std::int64_t batch, std::int64_t full, double free);
std::int64_t batch_after_overflow(const Demand& demand, std::int64_t batch);

}  // namespace holdfast::bench
