"""The Python peers of bench/checkpoint: how others make a training state durable. One long-lived process that
takes one JSON command a line and answers with one JSON line, so that its start is never measured.

    {"do": "save", "method": M}              -> {"blocked": s, "durable": s, "bytes": n}
    {"do": "steps", "steps": N, "method": M} -> {"seconds": s, "waited": s}   M null: the same without a save

`blocked` is what the training thread waits, `durable` what passes until the state would survive a power cut.
Whatever the method: written under a temporary name, fsync, rename, fsync of the directory. "steps" makes N
training steps with a save after the first, and ends when that save is durable (`waited`: the wait at the end).
"""
import argparse
import gc
import importlib.metadata
import json
import os
import shutil
import sys
import time
import warnings

import h5py
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F

from torch.distributed._state_dict_utils import _create_cpu_state_dict

from resnet50 import ResNet50


def fsync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary, final):
    """The rest of a durable write, once the bytes of all files have been synced."""
    if os.path.isdir(temporary):
        fsync(temporary)
    os.rename(temporary, final)
    fsync(os.path.dirname(final))


class State:
    """Copies of ResNet-50 with momentum, as an ordinary script holds them."""

    def __init__(self, copies, width):
        torch.manual_seed(1)
        self.nets = [ResNet50(10, "imagenet", width) for _ in range(copies)]
        self.optimizers = [torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
                           for net in self.nets]
        for net, optimizer in zip(self.nets, self.optimizers):
            for parameter in net.parameters():
                parameter.grad = torch.randn_like(parameter) * 1e-3
            optimizer.step()
            optimizer.zero_grad()
        self.images = torch.rand(64, 3, 32, 32)
        self.labels = torch.randint(0, 10, (64,))

    def nested(self):
        state = {}
        for i, (net, optimizer) in enumerate(zip(self.nets, self.optimizers)):
            state[f"model{i}"] = net.state_dict()
            state[f"optimizer{i}"] = optimizer.state_dict()
        return state

    def flat(self):
        state = {}
        for i, (net, optimizer) in enumerate(zip(self.nets, self.optimizers)):
            for name, tensor in net.state_dict().items():
                state[f"model{i}/{name}"] = tensor
            names = [name for name, _ in net.named_parameters()]
            for index, slots in optimizer.state_dict()["state"].items():
                state[f"optimizer{i}/momentum_buffer/{names[index]}"] = slots["momentum_buffer"]
        return state

    def step(self):
        self.optimizers[0].zero_grad()
        loss = F.cross_entropy(self.nets[0](self.images), self.labels)
        loss.backward()
        self.optimizers[0].step()
        return loss.item()


class Blocking:
    """A save that the training thread waits for to the end."""

    def __init__(self, write):
        self.write = write

    def begin(self, state, temporary, final):
        self.write(state, temporary)
        publish(temporary, final)

    def wait(self):
        pass


class Asynchronous:
    """dcp.async_save; the rename and the last fsyncs follow on its own thread. With `cached`, the stager that keeps
    the memory it copies to (in torch 2.11 DefaultStager forgets it after every save). That one pins its memory,
    which needs CUDA: without it, it gets the same memory unpinned."""

    def __init__(self, cached=False):
        self.stager = dcp.staging.BlockingAsyncStager(cache_staged_state_dict=True) if cached else None
        self.published = None

    def begin(self, state, temporary, final):
        state = state.nested()
        if self.stager and self.stager.state_dict_cache is None and not torch.cuda.is_available():
            self.stager.state_dict_cache = _create_cpu_state_dict(state)
        upload = dcp.async_save(state, checkpoint_id=temporary, no_dist=True, async_stager=self.stager)
        self.published = torch.futures.Future()

        def done(finished):
            try:
                finished.result()
                publish(temporary, final)
                self.published.set_result(None)
            except BaseException as error:
                self.published.set_exception(error)
        upload.add_done_callback(done)

    def wait(self):
        self.published.wait()


def torch_save(state, path):
    torch.save(state.nested(), path)
    fsync(path)


def safetensors_save(state, path):
    safetensors.torch.save_file(state.flat(), path)
    fsync(path)


def h5py_save(state, path):
    with h5py.File(path, "w") as file:
        for name, tensor in state.flat().items():
            file.create_dataset(name, data=tensor.detach().numpy())
    fsync(path)


def dcp_save(state, path):
    dcp.save(state.nested(), checkpoint_id=path, no_dist=True)  # fsyncs its files itself


def methods():
    return {
        "torch.save": Blocking(torch_save),
        "safetensors": Blocking(safetensors_save),
        "h5py": Blocking(h5py_save),
        "dcp.save": Blocking(dcp_save),
        "dcp.async_save": Asynchronous(),
        "dcp.async_save, cached": Asynchronous(cached=True),
    }


def bytes_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(path) for file in files)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


class Peers:
    def __init__(self, options):
        self.state = State(options.copies, options.width)
        self.methods = methods()
        self.temporary = os.path.join(options.directory, "temporary")
        self.final = os.path.join(options.directory, "final")

    def save(self, method):
        method = self.methods[method]
        gc.collect()
        begin = time.perf_counter()
        method.begin(self.state, self.temporary, self.final)
        blocked = time.perf_counter() - begin
        method.wait()
        durable = time.perf_counter() - begin
        size = bytes_of(self.final)
        remove(self.final)
        return {"blocked": blocked, "durable": durable, "bytes": size}

    def steps(self, count, method):
        begin = time.perf_counter()
        self.state.step()
        if method:
            method = self.methods[method]
            method.begin(self.state, self.temporary, self.final)
        for _ in range(count - 1):
            self.state.step()
        trained = time.perf_counter()
        if method:
            method.wait()
        end = time.perf_counter()
        remove(self.final)
        return {"seconds": end - begin, "waited": end - trained}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--directory", required=True)
    options.add_argument("--copies", type=int, default=1)
    options.add_argument("--width", type=int, default=64)
    options = options.parse_args()
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    peers = Peers(options)

    def answer(what):
        print(json.dumps(what), file=answers, flush=True)
    answer({"methods": list(peers.methods), "threads": torch.get_num_threads(),
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "safetensors", "h5py")}})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "save":
                answer(peers.save(command["method"]))
            else:
                answer(peers.steps(command["steps"], command["method"]))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}".splitlines()[0]})


main()
