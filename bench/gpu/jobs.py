"""The jobs of bench/gpu_session: what proves first, then what docs/figures.md has no figure of, then the rest."""
import dataclasses
import json
import os
import re
import shutil
import sys
from pathlib import Path

import records

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "bench/gpu"
PEERS = ROOT / ".deps/peers/bin/python"
EPOCHS = 20  # that are timed
PICTURES = 50_000
NO_PEERS = "there is no Python with PyTorch in .deps/peers (bench/peers/install)"


@dataclasses.dataclass
class Job:
    name: str
    seconds: float  # on an H100, generously
    command: list   # {files}: where files/NAME.json becomes its result; {work}: a folder that is removed
    why: str
    lacks: str = ""  # why it cannot be done here
    expected: int = 0  # its exit status
    limit: float = 0  # seconds after which it is ended; 0: some time more than expected
    proof: bool = False  # comes before all figures
    variables: dict = dataclasses.field(default_factory=dict)


def table_of(file):
    """Another table, from a JSON file: a list of objects with Job's fields."""
    try:
        return [Job(**{"why": "", "lacks": "", **one}) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"gpu_session: --table {file}: {error}")


def pictures(given):
    """--data for the example. A rehearsal does not read sixty thousand pictures."""
    if given.device == "cpu":
        return f"synthetic:{max(256, round(PICTURES * given.scale))}"
    folder = given.data or os.environ.get("HOLDFAST_CIFAR10_DIR")
    return str(Path(folder).resolve()) if folder else f"synthetic:{PICTURES}"


def gpus():
    return records.asked("nvidia-smi", "-L").count("GPU ")


def nccl(given):
    """What lets two ranks meet here: variables, and why they cannot."""
    if gpus() > 1:
        return {}, ""
    if not given.nccl:
        return {}, "one GPU, and no NCCL that lets ranks share it (--nccl, gpu_pack --nccl)"
    return {"HOLDFAST_TEST_NCCL": str(Path(given.nccl).resolve())}, ""


def measured(text):
    """Names of the jobs that stand beside a figure in docs/figures.md."""
    section = text.partition("\n## On a GPU\n")[2].partition("\n## ")[0].partition("Not measured")[0]
    return {name for names in re.findall(r"gpu_session --only ([\w,.-]+)", section) for name in names.split(",")}


def by_value(table):
    """Proofs, then jobs without a figure, then the others; each in the table's order."""
    page = ROOT / "docs/figures.md"
    known = measured(page.read_text(encoding="utf-8")) if page.exists() else set()
    return sorted(table, key=lambda job: (not job.proof, not job.proof and job.name in known))


def sanitizer():
    return shutil.which("compute-sanitizer") or next(
        (str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))), "")


class Table:
    """Commands for one device. A CPU takes the same ones with smaller networks, or none, with the reason."""

    def __init__(self, given):
        self.given, self.cuda = given, given.device == "cuda"
        self.bin, self.tests = given.build / "bin", given.build / "tests"
        self.jobs = []

    def add(self, name, seconds, why, command, gpu_only="", lacks="", **fields):
        words = [str(word) for word in command]
        lacks = (gpu_only if not self.cuda else "") or lacks
        if not lacks and not Path(words[0]).exists():
            lacks = f"there is no {words[0]}"
        if not self.cuda:  # how fast it is says nothing
            seconds, fields["limit"] = min(seconds, 60), 1200
        self.jobs.append(Job(name, seconds, words, why, lacks, **fields))

    def rows(self, name, seconds, why, rows, bn="fused", peers="", **conditions):
        """Of bench_precision_table. A CPU has neither graphs nor quick FP16."""
        timing = ["--seconds", 3, "--warm-up", 11]
        if not self.cuda:
            rows = rows.replace("fp16", "fp32").replace("graph", "eager")
            bn = bn if name == "resnet50-fused" else "aten"  # fused ones are slow there: one will do
            timing = ["--scale", self.given.scale, "--steps", 1, "--warm-up", 1, "--device", "cpu"]
            timing += ["--tiny-bert"] if rows.startswith("bert") else ["--pixels", 96 if "inception" in rows else 64]
        peer_words = []
        if peers and PEERS.exists():
            peer_words = ["--peers", peers if self.cuda else "eager"]
        elif peers:
            why += "; ours alone: " + NO_PEERS
        self.add(name, seconds, why, [self.bin / "bench_precision_table", "--rows", rows, "--bn", bn, *peer_words, *timing,
                                      "--output", "{files}/" + name], **conditions)

    def example(self, *more):
        small = [] if self.cuda else ["--width", 4, "--batch-size", 64, "--threads", 1]
        return ["--data", pictures(self.given), *small, *more]

    def recipe94(self, name, seconds, why, epochs, against, *more):
        if against != "none" and not PEERS.exists():
            against, why = "none", why + "; ours alone: " + NO_PEERS
        epochs = epochs if self.cuda else max(2, round(epochs * self.given.scale))
        self.add(name, seconds, why, [ROOT / "bench/recipe94", *self.example(), "--epochs", epochs, *more, "--against", against,
                                      "--output", "{files}/" + name + ".json"], variables={"BUILD": str(self.given.build)})


def table(given):
    t = Table(given)
    graph = ["--graph", "--data-on", "device", "--bn", "fused"]
    no_peers = "" if PEERS.exists() else NO_PEERS
    half = ["--precision", "fp16", "--loss-scale", 1024] if t.cuda else []
    only_cuda = "only a build with CUDA has them, and they need a GPU"
    t.add("tests", 90, "all GPU tests but that of several ranks, at once", [HERE / "tests", given.build],
          gpu_only=only_cuda, proof=True)
    variables, alone = nccl(given) if t.cuda else ({}, "")
    t.add("nccl", 180, "several ranks by NCCL: lost, stopped, told to end; other numbers of them; what they share",
          [HERE / "tests", given.build, "gpu_nccl_ranks_test"], gpu_only=only_cuda, lacks=alone, variables=variables,
          proof=True)
    for stem in ("imagenet", "cifar"):
        t.add(f"resume-{stem}", 30, f"the example, killed and resumed, has the same bits: {stem} stem, FP16, graph, fused "
              "norms, pictures on the device",
              [HERE / "resume", "--steps", 60 if t.cuda else 24, "--folder", "{work}", "--", t.bin / "resnet50_cifar10",
               *t.example("--stem", stem, "--channels-last", *half, *graph)], proof=True)
    t.add("two-ranks", 15, "two ranks on one GPU are refused (64)",
          [t.bin / "holdfast", "launch", "--nproc", 2, "--", t.bin / "resnet50_cifar10", "--data", "synthetic:2000",
           "--steps", 5, "--batch-size", 64, "--checkpoint-dir", "{work}/run"],
          gpu_only="on a CPU two ranks are welcome", lacks="" if gpus() < 2 else "this machine has a GPU for each",
          expected=64, proof=True)
    together = {"LD_PRELOAD": variables["HOLDFAST_TEST_NCCL"], "NCCL_MULTI_RANK_GPU_ENABLE": "1"} if variables else {}
    t.add("data-parallel", 60, "a data-parallel step by NCCL, two ranks, against the same loop with plain c10d",
          [t.bin / "bench_data_parallel", "--device", given.device, "--models", "resnet50" if t.cuda else "mlp", "--no-python",
           *(["--batch", 64, "--steps", 10] if t.cuda else ["--steps", 3, "--repetitions", 3]),
           "--output", "{files}/data-parallel.json"], lacks=alone, variables=together)
    t.add("start-up", 60, "where a resumed start's time goes: nothing compiled, compiled, compiled on another machine",
          [t.bin / "bench_start_up", *([5] if t.cuda else [1, "synthetic:2000", 8]), "--gpu", "--device", given.device])
    # Each of torch.compile's modes alone: compiling takes a minute, and max-autotune's up to eight.
    row = "resnet50/fp16/nhwc/graph"
    for name, seconds, mode in (("resnet50-compile", 80, "compile"), ("resnet50-overhead", 80, "reduce-overhead")):
        t.rows(name, seconds, f"ResNet-50 in a graph against Python's torch.compile, {mode}", row, peers=mode, lacks=no_peers)
    tuned = any(folder and (Path(folder) / "resnet50-autotune.bin").exists() for folder in (given.cache, given.done / "cache"))
    t.rows("resnet50-autotune", 150 if tuned else 480, "the same against max-autotune; what was compiled is kept for the next session", row,
           peers="max-autotune", lacks=no_peers, variables={"HOLDFAST_COMPILED": "{cache}/resnet50-autotune.bin"})
    t.rows("fp16-tf32", 150, "what FP16 gains over TF32, table-style and fair",
           "resnet50/fp16/nhwc,resnet50/tf32" if t.cuda else "resnet50/fp16/nhwc")
    t.rows("bert-128", 150, "BERT-Large, 128 tokens, FP16, against Python eager", "bert-128/fp16/graph/x1", bn="aten",
           peers="eager")
    for model in ("vgg16", "inception3", "ssd300"):
        t.rows(model, 120, f"{model} in FP16 against Python eager", f"{model}/fp16/nhwc/graph", peers="eager",
               bn="aten" if model == "vgg16" else "fused")
    t.add("determinism", 120, "the price of deterministic kernels",
          [t.bin / "bench_step_time", "--models", "resnet50" if t.cuda else "mlp", "--peers", "eager", "--deterministic",
           "--device", given.device, *([] if t.cuda else ["--steps", 20, "--repetitions", 2]),
           "--output", "{files}/determinism.json"], lacks=no_peers)
    for tool in ("memcheck", "racecheck"):
        t.add(tool, 240, f"small cases under compute-sanitizer {tool}", [HERE / "sanitized", tool, given.build],
              gpu_only="it looks at a GPU's memory", lacks="" if sanitizer() else "there is no compute-sanitizer here (CUDA toolkit)",
              variables={"COMPUTE_SANITIZER": sanitizer()})
    t.recipe94("recipe94", 120, "the recipe's 30 epochs on CIFAR-10: accuracy and seconds", 30, "none",
               *(graph if t.cuda else []))
    for bn in ("fused", "aten"):
        t.rows(f"resnet50-{bn}", 40, f"ResNet-50 at 224, FP16, NHWC, eager and graph, --bn {bn}", "resnet50/fp16/nhwc",
               bn=bn)
    t.rows("resnet50-python", 120, "ResNet-50 in a graph against Python eager", row, peers="eager", lacks=no_peers)
    t.add("checkpoint", 90, "what a save blocks and costs beside a GPU, and what it is made of",
          [t.bin / "bench_checkpoint", "--directory", "{work}", "--only", "split,gpu" if t.cuda else "commit", "--no-peers",
           *(["--states", "resnet50", "--windows", 16] if t.cuda else ["--quick"]), "--output", "{files}/checkpoint"])
    t.recipe94("cifar-epochs", 150, "seconds of a CIFAR-10 epoch against Python eager", EPOCHS, "eager", "--stem", "imagenet",
               *graph)
    t.recipe94("cifar-overhead", 240, "the same against reduce-overhead", EPOCHS,
               "reduce-overhead" if t.cuda else "eager", "--stem", "imagenet", *graph)
    t.add("recipe94-python", 300, "the recipe's 30 epochs in Python",
          [PEERS, ROOT / "bench/peers/recipe94.py", "--data", pictures(given),
           *([] if t.cuda else ["--width", 4, "--batch-size", 64, "--epochs", 1])], lacks=no_peers)
    for model in ("resnet152", "inception4", "alexnet"):
        t.rows(model, 150, f"{model} in FP16 against Python eager", f"{model}/fp16/nhwc/graph", peers="eager",
               bn="aten" if model == "alexnet" else "fused")
    t.rows("bf16", 150, "ResNet-50 in BF16", "resnet50/bf16/nhwc", gpu_only="slow on a CPU")
    t.add("checkpoint-all", 1500, "the whole checkpoint bench on this machine's disk",
          [t.bin / "bench_checkpoint", "--directory", "{work}", *([] if t.cuda else ["--quick", "--no-peers"]),
           "--output", "{files}/checkpoint-all"])
    t.add("table", 3600, "the default rows of the published table",
          [t.bin / "bench_precision_table", "--seconds", 3, "--warm-up", 11, "--output", "{files}/table"],
          gpu_only="hours on a CPU")
    return by_value(t.jobs)
