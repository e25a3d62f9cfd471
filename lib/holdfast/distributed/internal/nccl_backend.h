// c10d's NCCL backend in a separate file: its headers need NCCL's and much of CUDA's, which a build may lack.
//
// Errors: UsageError in a build without CUDA or NCCL's header. Threads: one; fault_of() any.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// Sets TORCH_NCCL_ASYNC_ERROR_HANDLING to 0 unless the environment has it: nccl_watch.h handles failures.
// Call it while there are few threads, because others may read the environment.
void prepare_nccl();
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout);
// Waits until everything begun on `device` has finished. Collective.
void finish_nccl(c10d::Backend& nccl, c10::Device device);

// "host GPU-8a6d…", as in nvidia-smi -L. Empty for a test's backend.
std::string gpu_of(c10::Device device);

// The version of the loaded NCCL, as ncclGetVersion() counts: 23007 is 2.30.7. 0: it cannot be asked.
int nccl_version();

// What c10d's watchdog has noticed, as text. Empty: nothing.
std::string fault_of(c10d::Backend& nccl, Duration timeout);

// What a backend of make_nccl() may answer as well. Any thread.
class PendingCollectives {
 public:
  virtual ~PendingCollectives() = default;
  // A collective has begun and not ended.
  virtual bool pending() = 0;
};

// True if the training thread may be waiting for a collective. Any thread.
bool collectives_pending(c10d::Backend& nccl);

// How long a save may take after a failure (nccl_watch.h).
Duration nccl_patience() noexcept;

// For tests: replaces make_nccl by a backend for CUDA tensors that needs no GPU. Null restores the real one.
using MakeNccl = c10::intrusive_ptr<c10d::Backend> (*)(int rank, int world_size);
void make_nccl_by(MakeNccl make, Duration patience = std::chrono::seconds(30)) noexcept;

}}  // namespace holdfast::v0_2
