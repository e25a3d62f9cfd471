"""The models of lib/holdfast/models in plain torch.nn, by name and variant: same layers and names. Weights are
given by who asks, so there is no initialisation of the variant `table` here."""
from torch import nn

from resnet50 import ResNet50


class Features(nn.Module):
    """Convolutions, a pool to a fixed size, linear layers."""

    def __init__(self, features, pooled, classifier):
        super().__init__()
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(pooled)
        self.classifier = nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.pool(self.features(x)).flatten(1))


def relu():
    return nn.ReLU(inplace=True)


def vgg16(classes, dropout):
    features, channels = [], 3
    for layer in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if layer == 0:
            features.append(nn.MaxPool2d(2, 2))
        else:
            features += [nn.Conv2d(channels, layer, 3, padding=1), relu()]
            channels = layer
    return Features(features, 7, [nn.Linear(512 * 49, 4096), relu(), nn.Dropout(dropout), nn.Linear(4096, 4096), relu(),
                                  nn.Dropout(dropout), nn.Linear(4096, classes)])


def alexnet(classes, dropout, table):
    fourth = 384 if table else 256
    features = [nn.Conv2d(3, 64, 11, 4, 0 if table else 2), relu(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, padding=2),
                relu(), nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, padding=1), relu(),
                nn.Conv2d(384, fourth, 3, padding=1), relu(), nn.Conv2d(fourth, 256, 3, padding=1), relu(),
                nn.MaxPool2d(3, 2)]
    first, second = nn.Linear(256 * 36, 4096), nn.Linear(4096, 4096)
    if table:
        classifier = [first, relu(), nn.Dropout(dropout), second, relu(), nn.Dropout(dropout)]
    else:
        classifier = [nn.Dropout(dropout), first, relu(), nn.Dropout(dropout), second, relu()]
    return Features(features, 6, classifier + [nn.Linear(4096, classes)])


def make(name, variant, classes, dropout):
    table = variant == "table"
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 128), relu(), nn.Linear(128, 128), relu(), nn.Linear(128, classes))
    if name == "resnet50":
        return ResNet50(classes, stride_first=table)
    if name == "resnet152":
        return ResNet50(classes, blocks=(3, 8, 36, 3), stride_first=table)
    if name == "vgg16":
        return vgg16(classes, dropout)
    if name == "alexnet":
        return alexnet(classes, dropout, table)
    raise ValueError(f"there is no model {name}")
