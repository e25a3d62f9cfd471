// c10d's NCCL backend, in a file of its own: its headers need NCCL's and much of CUDA's, which a build can
// lack.
//
// Errors: UsageError in a build without CUDA or without NCCL's header. Threads: one; fault_of() any.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// Sets TORCH_NCCL_ASYNC_ERROR_HANDLING to 0 where nobody has set it: what fails is nccl_watch.h's affair. To
// be called while there are few threads: some may be reading the environment.
void prepare_nccl();
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout);
// Lets all that was begun on `device` come to its end. Collective.
void finish_nccl(c10d::Backend& nccl, c10::Device device);

// "host GPU-8a6d…", as nvidia-smi -L names it; empty where nothing stands behind it (a test's backend).
std::string gpu_of(c10::Device device);

// What c10d's watchdog has noticed, in words; empty: nothing.
std::string fault_of(c10d::Backend& nccl, Duration timeout);

// How long a thread may wait for the device after a failure (nccl_watch.h).
Duration nccl_patience() noexcept;

// For tests, in the place of make_nccl: a backend for CUDA tensors that needs no GPU. Null: the real one.
using MakeNccl = c10::intrusive_ptr<c10d::Backend> (*)(int rank, int world_size);
void make_nccl_by(MakeNccl make, Duration patience = std::chrono::seconds(30)) noexcept;

}  // namespace holdfast::inline v1
