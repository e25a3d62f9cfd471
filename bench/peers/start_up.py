"""The Python peer of bench/start_up: what an ordinary PyTorch script does from process start to its first
finished training step, fresh or resumed with torch.load. Prints `step 1 loss …` when that step is done.

    python start_up.py --data DIR|synthetic [--batch-size 128] [--width 64] [--threads N]
                       [--checkpoint FILE]    resume from FILE if it exists, else train one step and write it
"""
import argparse
import os

import numpy
import torch
import torch.nn.functional as F

from resnet50 import ResNet50


def pictures(data):
    if data.startswith("synthetic"):
        generator = numpy.random.default_rng(1)
        return (generator.integers(0, 256, (50000, 3, 32, 32), dtype=numpy.uint8),
                generator.integers(0, 10, 50000, dtype=numpy.int64))
    rows = [numpy.fromfile(os.path.join(data, f"data_batch_{i}.bin"), dtype=numpy.uint8).reshape(-1, 3073)
            for i in range(1, 6)]
    rows = numpy.concatenate(rows)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(numpy.int64)


class Cifar(torch.utils.data.Dataset):
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    std = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)

    def __init__(self, data):
        self.images, self.labels = pictures(data)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = F.pad(torch.from_numpy(self.images[i]), (4, 4, 4, 4))
        top, left, flip = (int(torch.randint(0, n, ())) for n in (9, 9, 2))
        x = x[:, top:top + 32, left:left + 32].float().div_(255).sub_(self.mean).div_(self.std)
        return (x.flip(2) if flip else x), int(self.labels[i])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="synthetic")
    options.add_argument("--batch-size", type=int, default=128)
    options.add_argument("--width", type=int, default=64)
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--checkpoint")
    options = options.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    net = ResNet50(10, "imagenet", options.width)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    resume = options.checkpoint and os.path.exists(options.checkpoint)
    if resume:
        saved = torch.load(options.checkpoint, weights_only=False)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"])
    loader = torch.utils.data.DataLoader(Cifar(options.data), options.batch_size, shuffle=True, drop_last=True)
    images, labels = next(iter(loader))
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    print(f"step 1 loss {loss.item():.9g}", flush=True)
    if options.checkpoint and not resume:
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()},
                   options.checkpoint)


main()
