"""ResNet-50 in plain torch.nn, the peer of examples/models/resnet.h: same layers, names and initialisation,
the same `stem` and `width` switches; v1.5, or v1 with `stride_first`; ResNet-152 with other `blocks`."""
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride, stride_first=False):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, stride if stride_first else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if stride_first else stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    def __init__(self, classes=10, stem="imagenet", width=64, blocks=(3, 4, 6, 3), stride_first=False):
        super().__init__()
        imagenet = stem == "imagenet"
        self.conv1 = nn.Conv2d(3, width, 7 if imagenet else 3, 2 if imagenet else 1, 3 if imagenet else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        inputs = width
        for layer, count in enumerate(blocks):
            planes = width << layer
            stack = []
            for block in range(count):
                stack.append(Bottleneck(inputs, planes, 2 if layer > 0 and block == 0 else 1, stride_first))
                inputs = 4 * planes
            setattr(self, f"layer{layer + 1}", nn.Sequential(*stack))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))
