"""`holdfast supervise`, and `holdfast sweep`, as process 1 of the run's container: scenario 33.

No Docker daemon is needed: a process name space with its own /proc stands for the container. It has no init,
and a signal without a handler does nothing to its process 1. Then `docker stop` is a SIGTERM to that process,
as Docker does it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_scripts import KIT, Bench, bench  # noqa: F401

BIN = Path(os.environ["HOLDFAST_BUILD"]) / "bin"
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# `docker run OPTIONS IMAGE WORDS`: the image's entry point is holdfast.
DOCKER = """[[ $1 == run ]] || exit 0
while [[ $1 != *@sha256:* ]]; do shift; done
shift
exec {apart} {entry} "$@"
"""
TRAINER = """#!/bin/bash
trap 'echo "the trainer heard TERM" >>"$LOG"; exit 75' TERM
echo "the trainer begins" >>"$LOG"
while :; do sleep 0.05; done
"""


def process_one(of: int) -> int | None:
    """The child whose number is 1 in its own name space."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit():
                lines = (entry / "status").read_text().splitlines()
                told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
                if int(told["PPid"]) == of and told["NSpid"].split()[1:] == ["1"]:
                    return int(entry.name)
    return None


def stopped(bench: Bench, entry: str, patience: float, sweep: str = "") -> int | None:  # noqa: F811
    """The container's exit code after `docker stop`; None: it did not end in that time."""
    if not (BIN / "holdfast").exists():
        pytest.skip(f"{BIN / 'holdfast'} is not built")
    if subprocess.run([*APART, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no process name spaces here")
    bench.double("docker", DOCKER.format(apart=" ".join(APART), entry=entry))
    (bench.bin / "train").write_text(TRAINER)
    (bench.bin / "train").chmod(0o755)
    words = ["supervise", "--directory", str(bench.root / "mnt/run")]
    if sweep:
        file = bench.root / "etc/sweep.jsonl"
        file.write_text(sweep)
        words = ["sweep", str(file), "--root", str(bench.root / "mnt/runs"), "--local", "2"]
    begun = max(1, len(sweep.splitlines()))
    container = subprocess.Popen(
        [str(KIT / "run-docker.sh"), *words, "--", "train"],
        env={
            "PATH": f"{bench.bin}:/usr/bin:/bin",
            "HF_IMAGE": "x@sha256:0",
            "HF_MOUNT": str(bench.root / "mnt"),
            "LOG": str(bench.log),
        },
    )
    try:
        until = time.monotonic() + 60
        while bench.calls().count("the trainer begins") < begun or not (first := process_one(container.pid)):
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(first, signal.SIGTERM)
        return container.wait(patience)
    except subprocess.TimeoutExpired:
        return None
    finally:
        container.kill()
        container.wait()


def test_sigterm_reaches_the_trainer_without_init(bench: Bench) -> None:  # noqa: F811
    assert stopped(bench, str(BIN / "holdfast"), 60) == 75
    assert "the trainer heard TERM" in bench.calls()


def test_sigterm_reaches_each_trainer_of_a_sweep(bench: Bench) -> None:  # noqa: F811
    assert stopped(bench, str(BIN / "holdfast"), 60, '{"name": "a"}\n{"name": "b"}\n') == 75
    assert bench.calls().count("the trainer heard TERM") == 2


def test_planted_shell_as_process_one(bench: Bench) -> None:  # noqa: F811
    """What a start script without `exec` does: the signal ends nothing, and Docker kills all after its time-out."""
    script = bench.bin / "entry"
    script.write_text(f'#!/bin/bash\n"{BIN}/holdfast" "$@"\nexit\n')
    script.chmod(0o755)
    assert stopped(bench, str(script), 2) is None
    assert "the trainer heard TERM" not in bench.calls()
