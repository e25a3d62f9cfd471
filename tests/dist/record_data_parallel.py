#!/usr/bin/env python3
"""Records where torch.nn.parallel.DistributedDataParallel arrives, as the table that sharded_test.cc compares with:
two ranks over Gloo on a CPU, 100 steps of two micro-batches, batch normalization, SGD with momentum, float64.

    python3 tests/dist/record_data_parallel.py > tests/dist/shard_program/recorded_data_parallel.h

Nothing is random; shard_program/as_python.cc has the same formulas.
"""
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

RANKS, STEPS, MICRO, BATCH = 2, 100, 2, 24


def net():
    nn = torch.nn
    made = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))
    with torch.no_grad():
        for p, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.tensor([((i * 7 + p * 13) % 23 - 11) / 40 for i in range(parameter.numel())])
                            .reshape(parameter.shape))
    return made


def inputs(step):
    return torch.tensor([[((step * 31 + n * 17 + f * 5 + n * f % 7) % 19 - 9) / 6 for f in range(8)]
                         for n in range(BATCH)])


def targets(step):
    return torch.tensor([[((step * 11 + n * 3 + f * 7) % 13 - 6) / 5 for f in range(3)] for n in range(BATCH)])


def train(rank, port, results):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    wrapped = torch.nn.parallel.DistributedDataParallel(net())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    of_rank = BATCH // MICRO // RANKS
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(MICRO):
            begin = micro * (BATCH // MICRO) + rank * of_rank
            wrapped.require_backward_grad_sync = micro + 1 == MICRO  # no_sync() for all but the last
            out = wrapped(inputs(step)[begin:begin + of_rank])
            ((out - targets(step)[begin:begin + of_rank]).square().mean() / MICRO).backward()
        optimizer.step()
    if rank == 0:
        numbers = [value for p in wrapped.module.parameters() for value in p.detach().flatten().tolist()]
        torch.save(numbers, results)
    dist.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = f"/tmp/recorded-data-parallel-{os.getpid()}"
    multiprocessing.spawn(train, (port, results), nprocs=RANKS)
    numbers = torch.load(results)
    os.remove(results)
    version = torch.__version__.split("+")[0]
    print(f"""// Where DistributedDataParallel of PyTorch {version} arrived, recorded by record_data_parallel.py: all parameters in
// order.
//
// Threads: constants.
#pragma once

namespace holdfast::test {{

inline constexpr double kRecordedByPython[] = {{""")
    for at in range(0, len(numbers), 4):
        print("    " + ", ".join(value.hex() for value in numbers[at:at + 4]) + ",")
    print("""};

}  // namespace holdfast::test""")
    print(len(numbers), "numbers", file=sys.stderr)


if __name__ == "__main__":
    main()
