"""The runs that the recipes for engines train in their tests: the real example, a place in moto's S3 each.

The trainer learns its last step only when nothing will happen to it any more, so that each life is short.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import boto3
import engine_double
import pytest
from s3_door import S3Door

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["HOLDFAST_BUILD"]) / "bin"
BUCKET = "bucket"
TRAINER = (
    *(str(BIN / "resnet50_cifar10"), "--data", "synthetic:256", "--width", "4", "--batch-size", "32"),
    *("--threads", "1", "--workers", "0", "--schedule-steps", "2000", "--every", "10steps"),
)
FOR_EVER = 1_000_000
CHECKPOINT = re.compile(r"step-0*(\d+)-a\d+\.h5$")


def need_programs() -> None:
    for name in ("holdfast", "resnet50_cifar10"):
        if not (BIN / name).exists():
            pytest.skip(f"{BIN / name} is not built")
    if shutil.which("rclone") is None:
        pytest.skip("no program rclone here")
    if engine_double.why_not():
        pytest.skip(engine_double.why_not())


def first_block(page: Path) -> str:
    return page.read_text().partition("```sh\n")[2].partition("```")[0]


class Experiments:
    """Of a file; `prefix` is their place in the bucket."""

    def __init__(self, file: Path, prefix: str, folder: Path) -> None:
        self.runs = [json.loads(line) for line in file.read_text().splitlines()]
        self.prefix, self.folder = prefix, folder
        self.last = {run["name"]: FOR_EVER for run in self.runs}
        for name in self.last:
            self._tell(name)
        trainer = folder / "bin" / "train"
        trainer.parent.mkdir()
        trainer.write_text(
            "#!/bin/sh\n[ \"$1 $3 $5\" = '--lr --seed --checkpoint-dir' ] || exit 64\n"
            f'exec {" ".join(TRAINER)} "$@" --steps "$(cat "{folder}/$(basename "$6").steps")"\n'
        )
        trainer.chmod(0o755)

    def _tell(self, name: str) -> None:
        (self.folder / f"{name}.steps").write_text(str(self.last[name]))

    def environment(self, door: S3Door) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}/bin:{BIN}:/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.folder),
            **door.environment(),
        }

    def home(self, name: str) -> int:
        """The newest step that is home; -1 without one."""
        found = boto3.client("s3", region_name="us-east-1").list_objects_v2(
            Bucket=BUCKET, Prefix=f"{self.prefix}/{name}/step-"
        )
        steps = [CHECKPOINT.search(one["Key"]) for one in found.get("Contents", [])]
        return max((int(match[1]) for match in steps if match), default=-1)

    def comes_to_its_end(self, name: str) -> None:
        if self.last[name] == FOR_EVER:
            self.last[name] = max(self.home(name), 0) + 25
            self._tell(name)

    def tasks(
        self, command: Sequence[str], environment: Mapping[str, str], kills: Sequence[Sequence[str]]
    ) -> list[engine_double.Task]:
        return [
            engine_double.Task(
                run["name"],
                command,
                environment,
                list(fate),
                progress=lambda name=run["name"]: self.home(name),  # type: ignore[misc]
                at_last=lambda name=run["name"]: self.comes_to_its_end(name),  # type: ignore[misc]
            )
            for run, fate in zip(self.runs, kills)
        ]

    def must_have_the_bits_of_undisturbed_ones(self, tasks: Sequence[engine_double.Task]) -> None:
        for run, task in zip(self.runs, tasks):
            name, place = run["name"], self.folder / "undisturbed" / run["name"]
            place.parent.mkdir(exist_ok=True)
            done = subprocess.run(
                [*TRAINER, "--lr", str(run["lr"]), "--seed", str(run["seed"]), "--checkpoint-dir", place,
                 "--steps", str(self.last[name])],
                env={"PATH": "/usr/bin:/bin", "HOLDFAST_SOURCES": "signal,file,deadline", "OMP_NUM_THREADS": "1"},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert complete(done.stdout) == complete(task.said[-1]), name


def complete(text: str) -> str:
    """Step and state of the line that the example ends with."""
    found = [line for line in text.splitlines() if "complete step=" in line]
    assert found, text
    words = dict(word.split("=", 1) for word in found[-1].split() if "=" in word)
    return f"{words['step']} {words['state']}"
