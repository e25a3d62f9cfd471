"""The Python peer of bench/step_time: an ordinary training loop on one batch. Weights and batch come from a file
that the bench wrote; afterwards it takes one number of steps a line and answers with one JSON line.

    python step_time.py JOB.json KIND
    12    ->    {"seconds": s of the steps, "loss": that of the last}

KIND is what to compare with, words joined by +:
    eager | compile | reduce-overhead | max-autotune     torch.compile's modes; eager is without
    fused                                                the optimizer with fused=True
    amp                                                  autocast (bf16 on a CPU, fp16 with GradScaler on a GPU)
                                                         and channels_last
"""
import json
import sys
import time

import numpy
import torch
import torch.nn.functional as F

import models

COMPILED = {"compile": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}


def read(file, shape, dtype=numpy.float32):
    values = numpy.fromfile(file, dtype=dtype, count=int(numpy.prod(shape)))
    return torch.from_numpy(values).reshape(shape)


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    words = set(sys.argv[2].split("+"))
    device = torch.device(job["device"])
    amp = "amp" in words
    half = torch.bfloat16 if device.type == "cpu" else torch.float16
    torch.set_num_threads(job["threads"])
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    net = models.make(job["model"], job["variant"], job["classes"], job["dropout"])
    with open(job["values"], "rb") as file, torch.no_grad():
        named = list(net.named_parameters())
        if [[name, list(value.shape)] for name, value in named] != job["parameters"]:
            raise SystemExit("the peer's parameters are not ours")
        for _, value in named:
            value.copy_(read(file, value.shape))
        pictures = read(file, job["pictures"])
        labels = read(file, [job["pictures"][0]], numpy.int64)
    order = torch.channels_last if amp and pictures.dim() == 4 else torch.contiguous_format
    net = net.to(device).to(memory_format=order)
    pictures, labels = pictures.to(device).contiguous(memory_format=order), labels.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=job["rate"], momentum=job["momentum"],
                                weight_decay=job["weight_decay"], fused=True if "fused" in words else None)
    scaler = torch.amp.GradScaler(device.type) if amp and half == torch.float16 else None

    def forward():
        with torch.autocast(device.type, dtype=half, enabled=amp):
            return F.cross_entropy(net(pictures), labels)

    for word in words & COMPILED.keys():
        forward = torch.compile(forward, mode=COMPILED[word])

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
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


main()
