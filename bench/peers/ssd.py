"""The Python peer of examples/models/ssd*: SSD300 in plain torch, with the names and layouts of MLPerf's
(resnet34) and torchvision's (vgg16) originals, both losses, and the synthetic rule of the published table. Weights and
inputs are given by who asks, so nothing is drawn here.

    net = ssd.make("resnet34", "table", 81)
    loss = ssd.table_loss(net(ssd.table_pictures(pictures, jitter)), boxes, classes, counts)
    net = ssd.make("vgg16", "torchvision", 91)
    loss = ssd.matched_loss("vgg16", net(pictures), anchors, corners, labels)      # anchors = ssd.anchors("vgg16")
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

BOXES_OF_CELL = (4, 6, 6, 6, 4, 4)
CELLS = (38, 19, 10, 5, 3, 1)
STEPS = (8, 16, 32, 64, 100, 300)
SIDES = (21, 45, 99, 153, 207, 261, 315)
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))


def relu():
    return nn.ReLU(inplace=True)


class BasicBlock(nn.Module):
    def __init__(self, inputs, channels, stride, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = norm(channels)
        self.relu = relu()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = norm(channels)
        self.downsample = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), norm(channels))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def stage(count, inputs, channels, stride, norm):
    return nn.Sequential(*(BasicBlock(channels if i else inputs, channels, 1 if i else stride, norm)
                           for i in range(count)))


class Trunk(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64), relu(), nn.MaxPool2d(3, 2, 1),
                                    stage(3, 64, 64, 1, norm), stage(4, 64, 128, 2, norm))
        self.layer2 = nn.Sequential(stage(6, 128, 256, 1, norm))

    def forward(self, x):
        return self.layer2(self.layer1(x))


def extra(inputs, middle, outputs, stride, padding):
    return nn.Sequential(nn.Conv2d(inputs, middle, 1), relu(), nn.Conv2d(middle, outputs, 3, stride, padding), relu())


class ResNet34Ssd(nn.Module):
    def __init__(self, classes, table):
        super().__init__()
        self.columns, self.table = classes, table

        def norm(channels):
            return nn.BatchNorm2d(channels, eps=1e-4, momentum=0.003) if table else nn.BatchNorm2d(channels)

        channels = (256, 512, 512, 256, 256, 256)
        self.model = Trunk(norm)
        self.additional_blocks = nn.ModuleList([extra(256, 256, 512, 2, 1), extra(512, 256, 512, 2, 1),
                                                extra(512, 128, 256, 2, 1), extra(256, 128, 256, 1, 0),
                                                extra(256, 128, 256, 1, 0)])
        self.loc = nn.ModuleList(nn.Conv2d(c, n * 4, 3, padding=1) for c, n in zip(channels, BOXES_OF_CELL))
        self.conf = nn.ModuleList(nn.Conv2d(c, n * classes, 3, padding=1) for c, n in zip(channels, BOXES_OF_CELL))

    def rows(self, x, columns):
        if self.table:
            x = x.unflatten(1, (-1, columns)).transpose(1, 2)
        return x.reshape(x.shape[0], columns, -1)

    def forward(self, pictures):
        maps = [self.model(pictures)]
        for block in self.additional_blocks:
            maps.append(block(maps[-1]))
        return (torch.cat([self.rows(head(x), 4) for head, x in zip(self.loc, maps)], 2),
                torch.cat([self.rows(head(x), self.columns) for head, x in zip(self.conf, maps)], 2))


class Vgg16Maps(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for layer in (64, 64, 0, 128, 128, 0, 256, 256, 256, -1, 512, 512, 512, 0, 512, 512, 512):
            if layer <= 0:
                layers.append(nn.MaxPool2d(2, 2, ceil_mode=layer < 0))
            else:
                layers += [nn.Conv2d(channels, layer, 3, padding=1), relu()]
                channels = layer
        connected = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(512, 1024, 3, padding=6, dilation=6), relu(),
                                  nn.Conv2d(1024, 1024, 1), relu())
        self.scale_weight = nn.Parameter(torch.full((512,), 20.0))
        self.features = nn.Sequential(*layers[:23])
        self.extra = nn.ModuleList([nn.Sequential(*layers[23:], connected), extra(1024, 256, 512, 2, 1),
                                    extra(512, 128, 256, 2, 1), extra(256, 128, 256, 1, 0), extra(256, 128, 256, 1, 0)])

    def forward(self, x):
        x = self.features(x)
        maps = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            maps.append(x)
        return maps


class Columns(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns
        self.module_list = nn.ModuleList(nn.Conv2d(c, n * columns, 3, padding=1) for c, n in
                                         zip((512, 1024, 512, 256, 256, 256), BOXES_OF_CELL))

    def forward(self, maps):
        return torch.cat([conv(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.columns)
                          for conv, x in zip(self.module_list, maps)], 1)


class Vgg16Ssd(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Vgg16Maps()
        self.head = nn.Module()
        self.head.classification_head = Columns(classes)
        self.head.regression_head = Columns(4)

    def forward(self, pictures):
        maps = self.backbone(pictures)
        return self.head.regression_head(maps), self.head.classification_head(maps)


def make(backbone, variant, classes):
    if backbone == "vgg16":
        return Vgg16Ssd(classes)
    return ResNet34Ssd(classes, variant == "table")


def anchors(backbone):
    """Centres and corners: [8732, 4] in fractions for resnet34, in pixels for vgg16."""
    rows = []
    for index, (cells, step, ratios) in enumerate(zip(CELLS, STEPS, RATIOS)):
        side = SIDES[index] / 300
        sizes = [(side, side), (math.sqrt(side * (SIDES[index + 1] / 300)),) * 2]
        for ratio in ratios:
            wide, narrow = side * math.sqrt(ratio), side / math.sqrt(ratio)
            sizes += [(wide, narrow), (narrow, wide)]
        places = [((x + 0.5) * step / 300, (y + 0.5) * step / 300) for y in range(cells) for x in range(cells)]
        if backbone == "vgg16":
            rows += [place + size for place in places for size in sizes]
        else:
            rows += [place + size for size in sizes for place in places]
    centers = torch.tensor(rows)
    centers = torch.cat([centers[:, :2] if backbone == "vgg16" else centers[:, :2].clamp(0, 1),
                         centers[:, 2:].clamp(0, 1)], 1)
    corners = torch.cat([centers[:, :2] - 0.5 * centers[:, 2:], centers[:, :2] + 0.5 * centers[:, 2:]], 1)
    unit = 300 if backbone == "vgg16" else 1
    return centers * unit, corners * unit


def overlaps(a, b):
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(2)
    return both / ((a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1) - both)


def match(backbone, anchors, corners, labels):
    """Of one picture, corners [M, 4] as fractions, labels [M] with 0 for none: matched box of each anchor (centre and
    sides) and its class."""
    centers, boxes = anchors
    classes = torch.zeros(len(boxes), dtype=torch.int64, device=boxes.device)
    corners, labels = corners[labels > 0] * (300 if backbone == "vgg16" else 1), labels[labels > 0]
    if len(labels) == 0:
        return centers, classes
    overlap = overlaps(corners, boxes)
    best, box = overlap.max(0)
    for index, anchor in enumerate(overlap.max(1)[1]):
        best[anchor], box[anchor] = 2, index
    positive = best >= 0.5 if backbone == "vgg16" else best > 0.5
    classes[positive] = labels[box[positive]]
    matched = boxes.clone()
    matched[positive] = corners[box[positive]]
    return torch.cat([0.5 * (matched[:, :2] + matched[:, 2:]), matched[:, 2:] - matched[:, :2]], 1), classes


def ranks(values):
    return values.sort(dim=1, descending=True, stable=True)[1].sort(dim=1)[1]


def terms(output, offsets, classes):
    boxes, scores = (x if x.dtype == torch.float64 else x.float() for x in output)
    if boxes.shape[1] == 4:
        return (F.smooth_l1_loss(boxes.transpose(1, 2), offsets, reduction="none").sum(2),
                F.cross_entropy(scores, classes, reduction="none"))
    return (F.smooth_l1_loss(boxes, offsets, reduction="none").sum(2),
            F.cross_entropy(scores.flatten(0, 1), classes.flatten(), reduction="none").view(classes.shape))


def matched_loss(backbone, output, anchors, corners, labels):
    """corners [N, M, 4], labels [N, M]; a picture's rows of label 0 are no boxes."""
    with torch.no_grad():
        pairs = [match(backbone, anchors, *picture) for picture in zip(corners.to(anchors[0].dtype), labels)]
        boxes, classes = (torch.stack(x) for x in zip(*pairs))
        middle, sides = anchors[0][:, :2], anchors[0][:, 2:]
        offsets = torch.cat([10 * (boxes[..., :2] - middle) / sides, 5 * (boxes[..., 2:] / sides).log()], 2)
        positive = classes > 0
        count = positive.sum(1)
    box_terms, class_terms = terms(output, offsets, classes)
    hardness = class_terms.detach().masked_fill(positive, -math.inf if backbone == "vgg16" else 0)
    weight = positive.to(class_terms.dtype) + (ranks(hardness) < (3 * count)[:, None])
    sums = (box_terms * positive).sum(1) + (class_terms * weight).sum(1)
    if backbone == "vgg16":
        return sums.sum() / count.sum().clamp(min=1)
    return (sums * (count > 0) / count.clamp(min=1)).mean()


def table_loss(output, boxes, classes, counts):
    classes = classes.long()
    positive = classes > 0
    box_terms, class_terms = terms(output, boxes, classes)
    mined = ranks(class_terms.detach() * ~positive) < (3 * counts.long())[:, None]
    box_loss = ((box_terms * positive).sum(1) / counts).mean()
    return box_loss + ((class_terms * (positive.to(class_terms.dtype) + mined)).sum(1) / counts).mean()


def table_pictures(pictures, jitter):
    """The harness's jitter of colours (brightness, contrast, saturation, hue; [4]) and ImageNet's normalisation."""
    x = pictures + jitter[0]
    mean = x.mean((2, 3), keepdim=True)
    x = (x - mean) * jitter[1] + mean
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    scale = torch.where(value > 0, torch.minimum(jitter[2], value / chroma), 0)
    x = value - (value - x) * torch.where(chroma > 0, scale, 0)
    chroma = value - x.amin(1, keepdim=True)
    divisor = torch.where(chroma > 0, chroma, 1)
    red, green, blue = x.split(1, 1)
    hue = torch.where(value == red, (green - blue) / divisor,
                      torch.where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4))
    channel = torch.arange(5, 0, -2, device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    k = (hue + 6 * jitter[3] + channel).remainder(6)
    x = value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)
    mean = torch.tensor([.485, .456, .406], device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    deviation = torch.tensor([.229, .224, .225], device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    return ((x - mean) / deviation).contiguous(memory_format=torch.channels_last if pictures.is_contiguous(
        memory_format=torch.channels_last) else torch.contiguous_format)
