// c10d's NCCL backend, in a file of its own: its headers need NCCL's and much of CUDA's, which a build can
// lack.
//
// Errors: UsageError in a build without CUDA or without NCCL's header. Threads: one.
#pragma once

#include <c10/core/Device.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout);
// Lets all that was begun on `device` come to its end. Collective.
void finish_nccl(c10d::Backend& nccl, c10::Device device);

}  // namespace holdfast::inline v1
