"""The Python peer of bench/precision_table and bench/step_time: an ordinary training loop on one batch. Weights and
batch come from a file that the bench wrote; afterwards it takes one number of steps a line and answers with one JSON
line.

    python precision_table.py JOB.json KIND
    12    ->    {"seconds": s of the steps, "loss": that of the last}

KIND is what to compare with, words joined by +:
    eager | compile | reduce-overhead | max-autotune     torch.compile's modes; eager is without
    fused                                                SGD with fused=True; BERT's LAMB is Python's own, with which
                                                         the word does nothing
    amp                                                  instead of the job's precision and layout: autocast (bf16 on a
                                                         CPU, fp16 with GradScaler on a GPU) and channels_last

HOLDFAST_COMPILED names a file with what torch.compile has tuned: read before, if it is there, and written after the first
steps. Compiling takes seconds then, on the same kind of GPU with the same PyTorch.
"""
import json
import os
import sys
import time

import torch

import bert
import models
from fused_sgd import fused_sgd
from values import read_values

COMPILED = {"compile": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}


def bring_compiled(file):
    if file and os.path.exists(file):
        with open(file, "rb") as kept:
            torch.compiler.load_cache_artifacts(kept.read())


def keep_compiled(file):
    made = torch.compiler.save_cache_artifacts() if file else None  # None: nothing was compiled
    if made:
        with open(file + ".part", "wb") as kept:
            kept.write(made[0])
        os.replace(file + ".part", file)


def make_optimizer(job, net, words):
    if job["optimizer"] == "lamb":
        return bert.Lamb(bert.decay_groups(net, job["weight_decay"]), lr=job["rate"], max_grad_norm=1.0)
    make = fused_sgd if "fused" in words else torch.optim.SGD
    return make(net.parameters(), lr=job["rate"], momentum=job["momentum"], weight_decay=job["weight_decay"])


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    words = set(sys.argv[2].split("+"))
    device = torch.device(job["device"])
    precision, layout = job["precision"], job["layout"]
    if "amp" in words:
        precision, layout = "bf16" if device.type == "cpu" else "fp16", "nhwc"
    tf32 = precision == "tf32"
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    torch.set_num_threads(job["threads"])
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    net, loss_of = models.make(job)
    inputs = read_values(job, net)
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    net = net.to(device).to(memory_format=order).train()
    inputs = {name: value.to(device).contiguous(memory_format=order if value.dim() == 4 else torch.contiguous_format)
              for name, value in inputs.items()}
    optimizer = make_optimizer(job, net, words)
    scaler = torch.amp.GradScaler(device.type) if half == torch.float16 else None
    accumulation = job["accumulation"]

    def forward():
        with torch.autocast(device.type, dtype=half, enabled=half is not None):
            return loss_of(net, inputs)

    compiled = os.environ.get("HOLDFAST_COMPILED") if words & COMPILED.keys() else None
    bring_compiled(compiled)
    for word in words & COMPILED.keys():
        forward = torch.compile(forward, mode=COMPILED[word])

    def step():
        optimizer.zero_grad(set_to_none=True)
        for _ in range(accumulation):
            loss = forward()
            part = loss if accumulation == 1 else loss / accumulation
            (part if scaler is None else scaler.scale(part)).backward()
        if not job["update"]:
            return loss
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        return loss

    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            loss = step()
        loss = loss.item()  # the device is done
        print(json.dumps({"seconds": time.perf_counter() - begin, "loss": loss}), flush=True)
        keep_compiled(compiled)
        compiled = None


main()
