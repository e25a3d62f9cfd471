"""The Python peer of `resnet50_cifar10 --recipe 94`: the same network, recipe and defaults in an ordinary PyTorch
program with the data on the device. Prints one JSON line: test accuracy after the last epoch, seconds of each epoch and
their median (from step 30 on; start-up, torch.compile's work and evaluation left out), and what it ran on.

    python recipe94.py --data cifar-10-batches-bin
    python recipe94.py --data synthetic:2000 --epochs 1 --width 8 --batch-size 64
"""
import argparse
import json
import math
import os
import statistics
import time

import numpy
import torch
import torch.nn.functional as F

from fused_sgd import fused_sgd
from resnet50 import ResNet50

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
PADDING = 4
FIRST_TIMED = 30  # steps before that load libraries, and choose and capture kernels


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", default="synthetic", help="folder with CIFAR-10's binary batches, or synthetic[:COUNT]")
    add("--epochs", type=int, default=30)
    add("--batch-size", type=int, default=512)
    add("--lr", type=float, help="highest rate; default 0.1 per 128 pictures")
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=5e-4, help="on weights alone: neither biases nor batch norms")
    add("--label-smoothing", type=float, default=0.1)
    add("--warmup-share", type=float, default=0.2, help="of all steps; the cosine behind it ends at lr/100")
    add("--stem", choices=("cifar", "imagenet"), default="cifar")
    add("--width", type=int, default=64)
    add("--precision", choices=("fp16", "bf16", "fp32"), help="default: fp16 on a GPU, else fp32")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=0)
    add("--compile", metavar="MODE", help="torch.compile's mode: default, reduce-overhead, max-autotune")
    return parser.parse_args()


def read_cifar10(folder):
    def read(names):
        raw = numpy.concatenate([numpy.fromfile(os.path.join(folder, name), numpy.uint8) for name in names])
        rows = torch.from_numpy(raw.reshape(-1, 3073))
        return rows[:, 1:].reshape(-1, 3, 32, 32).contiguous(), rows[:, 0].long()

    return read([f"data_batch_{i}.bin" for i in range(1, 6)]), read(["test_batch.bin"])


def synthetic(count):
    """Stripes of ten kinds: enough to see that something is learnt."""
    def make(number, seed):
        drawn = torch.Generator().manual_seed(seed)
        labels = torch.randint(10, (number,), generator=drawn)
        rows = torch.arange(32).view(1, 1, 32, 1)
        stripes = 90 * torch.sin(rows * (labels.view(-1, 1, 1, 1) + 1) / 5)
        noise = 25 * torch.randn(number, 3, 32, 32, generator=drawn)
        return (128 + stripes + noise).clamp(0, 255).to(torch.uint8), labels

    return make(count, 1), make(max(10, count // 5), 2)


def factor(step, steps, warmup, floor=0.01):
    """What the highest rate is multiplied with for the update that follows `step` updates."""
    if step < warmup:
        start = 1 / (warmup + 1)
        return start + (1 - start) * step / warmup
    length = max(steps - warmup, 1)
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(step - warmup, length) / length)) / 2


class Augment:
    """A random crop of the picture padded in black, and a mirror for every second one; on the device."""

    def __init__(self, pictures, device):
        self.padded = F.pad(pictures.to(device), (PADDING,) * 4).permute(0, 2, 3, 1).contiguous()
        self.side = torch.arange(32, device=device)
        self.mean = 255 * torch.tensor(MEAN, device=device)
        self.std = 255 * torch.tensor(STD, device=device)

    def __call__(self, index):
        n, device = len(index), index.device
        top = torch.randint(2 * PADDING + 1, (n, 1), device=device)
        left = torch.randint(2 * PADDING + 1, (n, 1), device=device)
        flip = torch.rand(n, 1, device=device) < 0.5
        rows = top + self.side
        columns = left + torch.where(flip, 31 - self.side, self.side)
        crops = self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return ((crops.float() - self.mean) / self.std).permute(0, 3, 1, 2)  # channels_last

    def plain(self, index):
        crops = self.padded[index, PADDING:-PADDING, PADDING:-PADDING]
        return ((crops.float() - self.mean) / self.std).permute(0, 3, 1, 2)


def main():
    args = arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    if args.threads:
        torch.set_num_threads(args.threads)
    precision = args.precision or ("fp16" if cuda else "fp32")
    amp = precision != "fp32"
    half = torch.bfloat16 if precision == "bf16" else torch.float16
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(args.seed)

    if args.data.startswith("synthetic"):
        (pictures, labels), (test_pictures, test_labels) = synthetic(int(args.data.partition(":")[2] or 50_000))
    else:
        (pictures, labels), (test_pictures, test_labels) = read_cifar10(args.data)
    train, test = Augment(pictures, device), Augment(test_pictures, device)
    labels, test_labels = labels.to(device), test_labels.to(device)

    net = ResNet50(stem=args.stem, width=args.width).to(device, memory_format=torch.channels_last)
    weights = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    peak = args.lr if args.lr is not None else 0.1 * args.batch_size / 128
    optimizer = fused_sgd([{"params": weights}, {"params": others, "weight_decay": 0}], lr=peak,
                          momentum=args.momentum, nesterov=True, weight_decay=args.weight_decay)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    forward = torch.compile(net, mode=args.compile) if args.compile else net

    updates = len(labels) // args.batch_size  # the last, smaller batch is dropped
    steps = updates * args.epochs
    warmup = int(args.warmup_share * steps)
    if steps < 1:
        raise SystemExit(f"recipe94: {len(labels)} pictures are less than a batch of {args.batch_size}")

    def wait():
        if cuda:
            torch.cuda.synchronize()

    def compile_now():
        """Forward and backward once, without a trace: neither gradients nor statistics nor random numbers."""
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        drawn, drawn_there = torch.get_rng_state(), torch.cuda.get_rng_state() if cuda else None
        for _ in range(3):  # CUDA graphs warm up, too
            index = torch.arange(args.batch_size, device=device)
            with torch.autocast(device.type, dtype=half, enabled=amp):
                loss = F.cross_entropy(forward(train(index)), labels[index], label_smoothing=args.label_smoothing)
            scaler.scale(loss).backward()
            optimizer.zero_grad(set_to_none=True)
        net.load_state_dict(before)
        torch.set_rng_state(drawn)
        if cuda:
            torch.cuda.set_rng_state(drawn_there)

    net.train()
    if args.compile:
        compile_now()
        wait()
    step, epochs, rough = 0, [], []
    for _ in range(args.epochs):
        wait()
        begin, begin_step = time.perf_counter(), step
        mark, mark_step = begin, step
        order = torch.randperm(len(labels), device=device)
        for batch in order.split(args.batch_size)[:updates]:
            for group in optimizer.param_groups:
                group["lr"] = peak * factor(step, steps, warmup)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=half, enabled=amp):
                loss = F.cross_entropy(forward(train(batch)), labels[batch], label_smoothing=args.label_smoothing)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
            if step == FIRST_TIMED:
                wait()
                mark, mark_step = time.perf_counter(), step
        wait()
        end = time.perf_counter()
        rough.append((end - begin) / (step - begin_step) * updates)
        if mark_step >= FIRST_TIMED and 2 * (step - mark_step) >= updates:
            epochs.append((end - mark) / (step - mark_step) * updates)
    timed = epochs or rough  # a run that is too short: with its start

    net.eval()
    correct = 0
    with torch.no_grad(), torch.autocast(device.type, dtype=half, enabled=amp):
        for index in torch.arange(len(test_labels), device=device).split(1000):
            correct += (net(test.plain(index)).argmax(1) == test_labels[index]).sum().item()
    name = torch.cuda.get_device_name() if cuda else "cpu"
    print(json.dumps({"test_accuracy": correct / len(test_labels), "steps": steps,
                      "median_epoch_seconds": statistics.median(timed), "epoch_seconds": timed,
                      "from_step": FIRST_TIMED if epochs else 0,
                      "loss": loss.item(), "precision": precision, "device": name, "torch": torch.__version__}))


main()
