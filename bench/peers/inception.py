"""Inception v3 and v4 in plain torch.nn, the peers of examples/models/inception_v3.h and inception_v4.h: same
layers, names and order, in both variants. Weights are given by who asks, so nothing is drawn here as those models do."""
import torch
from torch import nn


class FixedScale(nn.BatchNorm2d):
    """The table's batch norm: its scale is 1 and no parameter."""

    def __init__(self, channels, **options):
        super().__init__(channels, **options)
        del self.weight
        self.register_buffer("weight", torch.ones(channels))


class ConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1, padding=0, table=False):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        norm = FixedScale if table else nn.BatchNorm2d
        self.bn = norm(outputs, eps=1e-3, momentum=0.001 if table else 0.1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


def point(key, outputs):
    return key, outputs, 1, 1, 0


def same(key, outputs, height, width=None):
    width = width or height
    return key, outputs, (height, width), 1, (height // 2, width // 2)


def valid(key, outputs, kernel, stride=1):
    return key, outputs, kernel, stride, 0


class Block(nn.Module):
    """Branches that read the same input: a pool or none, a chain of convolutions, and behind it a fork of some side by
    side. Their outputs are joined. A dot in a key makes a container."""

    def __init__(self, inputs, table, branches):
        super().__init__()
        self.branches, self.outputs = [], 0  # a plain list: the keys are those of the modules themselves
        for index, (pool, chain, fork) in enumerate(branches):
            if pool is not None:
                self.add_module(f"pool{index}", pool)
            channels, convolutions, forked = inputs, [], []
            for convolution in chain:
                convolutions.append(self.add(channels, table, convolution))
                channels = convolution[1]
            for convolution in fork:
                forked.append(self.add(channels, table, convolution))
            self.outputs += sum(convolution[1] for convolution in fork) if fork else channels
            self.branches.append((pool, convolutions, forked))

    def add(self, inputs, table, convolution):
        key, outputs, kernel, stride, padding = convolution
        container, _, name = key.rpartition(".")
        if container and not hasattr(self, container):
            self.add_module(container, nn.Module())
        module = ConvNorm(inputs, outputs, kernel, stride, padding, table)
        (getattr(self, container) if container else self).add_module(name, module)
        return module

    def forward(self, x):
        joined = []
        for pool, chain, fork in self.branches:
            y = x if pool is None else pool(x)
            for convolution in chain:
                y = convolution(y)
            joined += [convolution(y) for convolution in fork] if fork else [y]
        return torch.cat(joined, 1)


def branch(*chain, fork=(), pool=None):
    return pool, chain, fork


def halve():
    return nn.MaxPool2d(3, 2)


class InceptionV3(nn.Module):
    """`forward` gives the logits; with `auxiliary`, in training, the pair with the auxiliary head's."""

    def __init__(self, classes, table=False, auxiliary=False, dropout=None):
        super().__init__()
        self.Conv2d_1a_3x3 = ConvNorm(3, 32, 3, 2, table=table)
        self.Conv2d_2a_3x3 = ConvNorm(32, 32, 3, table=table)
        self.Conv2d_2b_3x3 = ConvNorm(32, 64, 3, padding=1, table=table)
        self.maxpool1 = halve()
        self.Conv2d_3b_1x1 = ConvNorm(64, 80, 1, table=table)
        self.Conv2d_4a_3x3 = ConvNorm(80, 192, 3, table=table)
        self.maxpool2 = halve()
        self.channels = 192

        def average():
            return nn.AvgPool2d(3, 1, 1, count_include_pad=not table)

        def add(key, branches):
            block = Block(self.channels, table, branches)
            self.add_module(key, block)
            self.channels = block.outputs

        def block_a(pooled):
            return [branch(point("branch1x1", 64)),
                    branch(point("branch5x5_1", 48), same("branch5x5_2", 64, 5)),
                    branch(point("branch3x3dbl_1", 64), same("branch3x3dbl_2", 96, 3), same("branch3x3dbl_3", 96, 3)),
                    branch(point("branch_pool", pooled), pool=average())]

        def block_c(inner):
            return [branch(point("branch1x1", 192)),
                    branch(point("branch7x7_1", inner), same("branch7x7_2", inner, 1, 7), same("branch7x7_3", 192, 7, 1)),
                    branch(point("branch7x7dbl_1", inner), same("branch7x7dbl_2", inner, 7, 1),
                           same("branch7x7dbl_3", inner, 1, 7), same("branch7x7dbl_4", inner, 7, 1),
                           same("branch7x7dbl_5", 192, 1, 7)),
                    branch(point("branch_pool", 192), pool=average())]

        def block_e(pool):
            return [branch(point("branch1x1", 320)),
                    branch(point("branch3x3_1", 384),
                           fork=(same("branch3x3_2a", 384, 1, 3), same("branch3x3_2b", 384, 3, 1))),
                    branch(point("branch3x3dbl_1", 448), same("branch3x3dbl_2", 384, 3),
                           fork=(same("branch3x3dbl_3a", 384, 1, 3), same("branch3x3dbl_3b", 384, 3, 1))),
                    branch(point("branch_pool", 192), pool=pool)]

        add("Mixed_5b", block_a(32))
        add("Mixed_5c", block_a(64))
        add("Mixed_5d", block_a(64))
        add("Mixed_6a", [branch(valid("branch3x3", 384, 3, 2)),
                         branch(point("branch3x3dbl_1", 64), same("branch3x3dbl_2", 96, 3),
                                valid("branch3x3dbl_3", 96, 3, 2)),
                         branch(pool=halve())])
        for key, inner in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
            add(key, block_c(inner))
        self.AuxLogits = None
        if auxiliary:
            self.AuxLogits = nn.Module()
            self.AuxLogits.conv0 = ConvNorm(768, 128, 1)
            self.AuxLogits.conv1 = ConvNorm(128, 768, 5)
            self.AuxLogits.fc = nn.Linear(768, classes)
        add("Mixed_7a", [branch(point("branch3x3_1", 192), valid("branch3x3_2", 320, 3, 2)),
                         branch(point("branch7x7x3_1", 192), same("branch7x7x3_2", 192, 1, 7),
                                same("branch7x7x3_3", 192, 7, 1), valid("branch7x7x3_4", 192, 3, 2)),
                         branch(pool=halve())])
        add("Mixed_7b", block_e(average()))
        add("Mixed_7c", block_e(nn.MaxPool2d(3, 1, 1) if table else average()))
        if dropout is None:
            dropout = 0 if table else 0.5
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(self.channels, classes)

    def side(self, x):
        x = nn.functional.avg_pool2d(x, 5, 3)
        x = self.AuxLogits.conv1(self.AuxLogits.conv0(x))
        return self.AuxLogits.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

    def forward(self, x):
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        side = self.side(x) if self.AuxLogits is not None and self.training else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        logits = self.fc(self.dropout(nn.functional.adaptive_avg_pool2d(x, 1)).flatten(1))
        return logits if side is None else (logits, side)


class InceptionV4(nn.Module):
    def __init__(self, classes, table=False, dropout=None):
        super().__init__()
        self.channels = 64
        layers = [ConvNorm(3, 32, 3, 2, table=table), ConvNorm(32, 32, 3, table=table),
                  ConvNorm(32, 64, 3, padding=1, table=table)]

        def average():
            return nn.AvgPool2d(3, 1, 1, count_include_pad=False)

        def add(*branches):
            layers.append(Block(self.channels, table, branches))
            self.channels = layers[-1].outputs

        add(branch(pool=halve()), branch(valid("conv", 96, 3, 2)))
        add(branch(point("branch0.0", 64), valid("branch0.1", 96, 3)),
            branch(point("branch1.0", 64), same("branch1.1", 64, 1, 7), same("branch1.2", 64, 7, 1),
                   valid("branch1.3", 96, 3)))
        add(branch(valid("conv", 192, 3, 2)), branch(pool=halve()))
        for _ in range(4):
            add(branch(point("branch0", 96)),
                branch(point("branch1.0", 64), same("branch1.1", 96, 3)),
                branch(point("branch2.0", 64), same("branch2.1", 96, 3), same("branch2.2", 96, 3)),
                branch(point("branch3.1", 96), pool=average()))
        add(branch(valid("branch0", 384, 3, 2)),
            branch(point("branch1.0", 192), same("branch1.1", 224, 3), valid("branch1.2", 256, 3, 2)),
            branch(pool=halve()))
        for _ in range(7):
            add(branch(point("branch0", 384)),
                branch(point("branch1.0", 192), same("branch1.1", 224, 1, 7), same("branch1.2", 256, 7, 1)),
                branch(point("branch2.0", 192), same("branch2.1", 192, 7, 1), same("branch2.2", 224, 1, 7),
                       same("branch2.3", 224, 7, 1), same("branch2.4", 256, 1, 7)),
                branch(point("branch3.1", 128), pool=average()))
        add(branch(point("branch0.0", 192), valid("branch0.1", 192, 3, 2)),
            branch(point("branch1.0", 256), same("branch1.1", 256, 1, 7), same("branch1.2", 320, 7, 1),
                   valid("branch1.3", 320, 3, 2)),
            branch(pool=halve()))
        for _ in range(3):
            add(branch(point("branch0", 256)),
                branch(point("branch1_0", 384),
                       fork=(same("branch1_1a", 256, 1, 3), same("branch1_1b", 256, 3, 1))),
                branch(point("branch2_0", 384), same("branch2_1", 448, 3, 1), same("branch2_2", 512, 1, 3),
                       fork=(same("branch2_3a", 256, 1, 3), same("branch2_3b", 256, 3, 1))),
                branch(point("branch3.1", 256), pool=average()))
        self.features = nn.Sequential(*layers)
        if dropout is None:
            dropout = 0.2 if table else 0
        self.dropout = nn.Dropout(dropout)
        self.last_linear = nn.Linear(self.channels, classes)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1)
        return self.last_linear(self.dropout(x))
