"""The Python peer of bench/data_parallel: one rank of an ordinary loop with DistributedDataParallel over Gloo. Weights
and the batch of all ranks come from a file that the bench wrote; each rank takes its share. Afterwards rank 0 takes one
number of steps a line, tells the others, and answers with one JSON line.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=… python data_parallel.py JOB.json
    12    ->    {"seconds": s of the steps, "loss": that of the last on rank 0}
"""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import models
from fused_sgd import fused_sgd
from values import read_values


def join():
    """The bench gives rank 0 a socket that listens already, as `holdfast launch` does: the port is nobody else's."""
    patience = datetime.timedelta(hours=1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    socket = os.environ.get("HOLDFAST_LAUNCH_SOCKET")
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0, patience,
                          wait_for_workers=False, master_listen_fd=None if socket is None else int(socket),
                          use_libuv=socket is None)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
    return rank, world


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    torch.set_num_threads(job["threads"])
    rank, world = join()
    net, loss_of = models.make(job)
    inputs = read_values(job, net)
    share = next(iter(inputs.values())).shape[0] // world
    inputs = {name: value[rank * share:(rank + 1) * share].contiguous() for name, value in inputs.items()}
    wrapped = torch.nn.parallel.DistributedDataParallel(net.train())
    optimizer = fused_sgd(net.parameters(), lr=job["rate"], momentum=job["momentum"],
                          weight_decay=job["weight_decay"])

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(wrapped, inputs)
        loss.backward()
        optimizer.step()
        return loss

    def next_count():
        count = torch.zeros(1, dtype=torch.int64)
        if rank == 0:
            line = sys.stdin.readline()
            count[0] = int(line) if line else 0
        dist.broadcast(count, 0)
        return int(count)

    if rank == 0:
        print(json.dumps({"torch": torch.__version__}), flush=True)
    while count := next_count():
        begin = time.perf_counter()
        for _ in range(count):
            loss = step()
        loss = loss.item()
        if rank == 0:
            print(json.dumps({"seconds": time.perf_counter() - begin, "loss": loss}), flush=True)
    dist.destroy_process_group()


main()
