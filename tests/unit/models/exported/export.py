"""What Python exports of the models of examples/models: their keys, and weights in closed form.

    python export.py keys [MODEL…]                 # writes MODEL.keys beside this program, for export_test.cc
    python export.py weights MODEL FILE            # a safetensors file; prints {"source": …, "losses": {…}}
    python export.py tiny FILE                     # the same of a BERT of 16 by Hugging Face

The originals export where they are installed beside PyTorch, as for the files here:
    pip install torchvision==0.26.0 timm==1.0.31 transformers==5.23.0
Elsewhere the peers of bench/peers do, typed after them; so does SSD300 on ResNet-34 always: MLPerf's original is no
package, and downloads its backbone. Each file and each answer says who did.

Values are those of oracle_fill.h, and statistics that no training gives: evaluation sees whether they arrived. Losses
are float64's, of evaluation and of training: of two pictures with labels 11 and 48, of BOXES, of two
sequences.
"""
import importlib
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "bench/peers"))
import bert
import inception
import models
import ssd

BOXES = ([[.1, .15, .45, .6], [.5, .3, .95, .9], [.02, .7, .2, .98]],
         [[.2, .2, .8, .85], [.6, .05, .72, .18], [.3, .55, .42, .95]])
BOX_LABELS = ([1, 17, 44], [80, 3, 25])
BUFFERS = 500_000  # their first stream


def bits(stream, count):
    x = numpy.arange(count, dtype=numpy.uint32) + numpy.uint32(0x9E3779B9 * (stream + 1) & 0xFFFFFFFF)
    x ^= x >> 16
    x *= numpy.uint32(0x7feb352d)
    x ^= x >> 15
    x *= numpy.uint32(0x846ca68b)
    return x ^ x >> 16


def filled(shape, stream, factor=1.0, offset=0.0):
    uniform = (bits(stream, math.prod(shape)) >> 8) * 2.0 ** -23 - 1.0
    return torch.from_numpy((offset + factor * uniform).astype(numpy.float32)).reshape(shape)


def fill(net, matrices=None):
    with torch.no_grad():
        for stream, (name, value) in enumerate(net.named_parameters()):
            if value.dim() >= 2:
                value.copy_(filled(value.shape, stream, matrices or math.sqrt(6 / value[0].numel())))
            elif name.endswith("scale_weight"):
                value.fill_(20)
            else:
                value.copy_(filled(value.shape, stream, 0.1, float(name.endswith("weight"))))
        for index, (name, value) in enumerate(net.named_buffers()):
            if name.endswith("num_batches_tracked"):
                value.fill_(index)
            elif name.endswith(("running_mean", "running_var")):
                value.copy_(filled(value.shape, BUFFERS + index, 0.1, float(name.endswith("running_var"))))


def pictures(pixels):
    return filled((2, 3, pixels, pixels), 1_000_002).double()


def original(package):
    """The package and its name with the version; without it None twice."""
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError:
        return None, None
    return module, f"{package} {module.__version__.split('+')[0]}"


PEER = "bench/peers of Holdfast, typed after "


class Classifier:
    def __init__(self, name, pixels, package="torchvision", auxiliary=False):
        self.name, self.pixels, self.package, self.auxiliary = name, pixels, package, auxiliary

    def make(self):
        module, source = original(self.package)
        if module is None:
            return self.peer(), PEER + self.package
        if self.package == "timm":
            return module.create_model(self.name), f"{source}: create_model('{self.name}')"
        words = {}
        if self.name == "inception_v3":
            words = {"aux_logits": self.auxiliary, "init_weights": False}
        said = ", ".join(f"{word}={value}" for word, value in words.items())
        return getattr(module.models, self.name)(**words), f"{source}: models.{self.name}({said})"

    def peer(self):
        if self.auxiliary:
            return inception.InceptionV3(1000, auxiliary=True, dropout=0.0)
        return models.classifier(self.name, "torchvision", 1000)

    def fill(self, net):
        fill(net)
        for module in net.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0

    def loss(self, net):
        outputs = net(pictures(self.pixels))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return sum(weight * F.cross_entropy(logits, torch.tensor([11, 48])) for weight, logits in zip((1, 0.4), outputs))


class Detector:
    def __init__(self, backbone):
        self.backbone = backbone

    def make(self):
        module, source = original("torchvision") if self.backbone == "vgg16" else (None, None)
        if module is None:
            theirs = "torchvision" if self.backbone == "vgg16" else "MLPerf (mlcommons/training, ssd-v1)"
            return ssd.make(self.backbone, "torchvision", 91 if self.backbone == "vgg16" else 81), PEER + theirs
        # The package has it lazily.
        net = importlib.import_module("torchvision.models.detection").ssd300_vgg16(weights=None, weights_backbone=None)
        return net, source + ": models.detection.ssd300_vgg16()"

    def fill(self, net):
        fill(net)

    def loss(self, net):
        shown = pictures(300)
        if hasattr(net, "transform"):  # the original, without what it does to pictures before and to boxes behind
            outputs = net.head(list(net.backbone(shown).values()))
            output = outputs["bbox_regression"], outputs["cls_logits"]
        else:
            output = net(shown)
        anchors = [one.double() for one in ssd.anchors(self.backbone)]
        return ssd.matched_loss(self.backbone, output, anchors, torch.tensor(BOXES, dtype=torch.float64),
                                torch.tensor(BOX_LABELS))


class Language:
    def __init__(self, tokens, predictions, **sizes):
        self.tokens, self.predictions = tokens, predictions
        self.sizes = {**bert.LARGE, **sizes}

    def make(self):
        module, source = original("transformers")
        o = self.sizes
        if module is None:
            sizes = {name: o[name] for name in ("vocabulary", "hidden", "layers", "heads", "inner", "positions")}
            return (bert.Bert(bert.options("torchvision", dropout=0.0, attention_dropout=0.0, **sizes)),
                    PEER + "Hugging Face's transformers")
        config = module.BertConfig(vocab_size=o["vocabulary"], hidden_size=o["hidden"], num_hidden_layers=o["layers"],
                                   num_attention_heads=o["heads"], intermediate_size=o["inner"], hidden_act="gelu",
                                   max_position_embeddings=o["positions"], hidden_dropout_prob=0.0,
                                   attention_probs_dropout_prob=0.0)
        return module.BertForPreTraining(config), source + ": BertForPreTraining()"

    def fill(self, net):
        fill(net, 0.02 * math.sqrt(3) if self.sizes["layers"] > 2 else None)

    def batch(self):
        def drawn(stream, count):
            ids = bits(stream, 2 * count).astype(numpy.int64) % self.sizes["vocabulary"]
            return torch.from_numpy(ids).reshape(2, count)

        places = [[j * self.tokens // self.predictions + b for j in range(self.predictions)] for b in range(2)]
        segments = (torch.arange(self.tokens) >= self.tokens // 2).long().expand(2, -1)
        return (drawn(2_000_000, self.tokens), segments, None, torch.tensor(places), drawn(3_000_000, self.predictions),
                None, torch.tensor([0, 1]))

    def loss(self, net):
        batch = self.batch()
        if hasattr(net, "loss"):
            return net.loss(batch)
        ids, segments, _, places, labels, _, following = batch
        output = net(input_ids=ids, token_type_ids=segments)
        words = output.prediction_logits.gather(1, places[:, :, None].expand(-1, -1, self.sizes["vocabulary"]))
        return (F.cross_entropy(words.flatten(0, 1), labels.flatten()) +
                F.cross_entropy(output.seq_relationship_logits, following))


MODELS = {
    "resnet50": Classifier("resnet50", 64),
    "resnet152": Classifier("resnet152", 64),
    "vgg16": Classifier("vgg16", 64),
    "alexnet": Classifier("alexnet", 224),
    "inception_v3": Classifier("inception_v3", 139),
    "inception_v3_auxiliary": Classifier("inception_v3", 299, auxiliary=True),
    "inception_v4": Classifier("inception_v4", 139, "timm"),
    "ssd300_resnet34": Detector("resnet34"),
    "ssd300_vgg16": Detector("vgg16"),
    "bert_large": Language(32, 5),
}
TINY = Language(16, 3, vocabulary=97, hidden=16, layers=2, heads=4, inner=32, positions=32)


def write_keys(name):
    with torch.device("meta"):
        net, source = MODELS[name].make()
    lines = [f"# {source}"]
    for key, value in net.state_dict().items():
        kind = str(value.dtype).removeprefix("torch.")
        lines.append(f"{key} {kind} {'x'.join(map(str, value.shape)) or '-'}")
    (HERE / f"{name}.keys").write_text("\n".join(lines) + "\n")
    print(f"{name}: {len(lines) - 1} keys, {source}")


def save(net, file):
    if not hasattr(net, "save_pretrained"):
        return save_file({key: value.contiguous() for key, value in net.state_dict().items()}, file)
    with tempfile.TemporaryDirectory(dir=Path(file).resolve().parent) as folder:  # as Hugging Face's users do
        net.save_pretrained(folder, max_shard_size="100GB")
        (Path(folder) / "model.safetensors").rename(file)


def write_weights(model, file):
    net, source = model.make()
    model.fill(net)
    save(net, file)
    net.double()
    with torch.no_grad():  # training moves statistics: last
        losses = {mode: getattr(net, mode)() and model.loss(net).item() for mode in ("eval", "train")}
    print(json.dumps({"source": source, "losses": losses}))


def main():
    command, *rest = sys.argv[1:]
    if command == "keys":
        for name in rest or MODELS:
            write_keys(name)
    elif command == "weights":
        write_weights(MODELS[rest[0]], rest[1])
    elif command == "tiny":
        write_weights(TINY, rest[0])
    else:
        raise SystemExit(__doc__)


main()
