"""The models of examples/models in plain torch.nn, by name and variant: same layers and names. Weights and inputs
are given by who asks, so there is no initialisation of the variant `table` here.

    net, loss_of = make(job)                 # a job of bench/precision_table/peer_job.h
    loss_of(net, inputs).backward()          # inputs by name
"""
import torch.nn.functional as F
from torch import nn

import bert
import inception
import ssd
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


def classifier(name, variant, classes, dropout=0.0):
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
    if name in ("inception3", "inception_v3"):
        return inception.InceptionV3(classes, table, dropout=dropout)
    if name in ("inception4", "inception_v4"):
        return inception.InceptionV4(classes, table, dropout=dropout)
    raise ValueError(f"there is no model {name}")


def classifier_loss(net, inputs):
    outputs = net(inputs["pictures"])
    if isinstance(outputs, tuple):
        logits, side = outputs
        return F.cross_entropy(logits, inputs["labels"]) + 0.4 * F.cross_entropy(side, inputs["labels"])
    return F.cross_entropy(outputs, inputs["labels"])


def detector_loss(net, inputs):
    pictures = ssd.table_pictures(inputs["pictures"], inputs["jitter"])
    return ssd.table_loss(net(pictures), inputs["boxes"], inputs["classes"], inputs["counts"])


def matching_loss(backbone):
    anchors = {}

    def loss(net, inputs):
        device = inputs["pictures"].device
        if device not in anchors:
            anchors[device] = [one.to(device) for one in ssd.anchors(backbone)]
        return ssd.matched_loss(backbone, net(inputs["pictures"]), anchors[device], inputs["corners"], inputs["classes"])

    return loss


def language_loss(net, inputs):
    return net.loss((inputs["input_ids"], inputs["segment_ids"], None, inputs["masked_lm_positions"],
                     inputs["masked_lm_ids"], None, inputs["next_sentence_labels"]))


def make(job):
    name, table = job["model"], job["variant"] == "table"
    if name == "ssd300":
        return ssd.make("resnet34", job["variant"], 81), detector_loss
    if name == "ssd300-matched":
        return ssd.make("resnet34", job["variant"], 81), matching_loss("resnet34")
    if name == "ssd300-vgg":
        return ssd.make("vgg16", "torchvision", 91), matching_loss("vgg16")
    if name.startswith("bert-"):
        tiny = dict(vocabulary=1000, hidden=64, layers=2, heads=4, inner=128) if job["tiny"] else {}
        return bert.Bert(bert.options(job["variant"], dropout=0.0, attention_dropout=0.0, **tiny)), language_loss
    classes = job["classes"] or (1001 if table else 1000)
    if name == "inception3-aux":
        return inception.InceptionV3(classes, auxiliary=True, dropout=0.0), classifier_loss
    return classifier(name, job["variant"], classes), classifier_loss
