"""examples/skypilot: SkyPilot itself reads the files, and their script goes through a double of its managed jobs.

The double keeps what SkyPilot promises: another machine with a fresh disk and the same script after a lost one and
after the exit codes of `recover_on_exit_codes`, and FAILED after any other.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from engine_double import Contract, Task, play
from experiments import BUCKET, ROOT, Experiments, first_block, need_programs
from moto import mock_aws
from s3_door import S3Door
from test_batch import POLICY, file_of, kills_of
from test_checkers import DEPS

RECIPE = ROOT / "examples" / "skypilot"
NIGHTLY = "HOLDFAST_AWS_NIGHTLY" in os.environ

READ = """
import sys, yaml, sky
document = yaml.safe_load(open(sys.argv[1]))
document.update(yaml.safe_load(sys.argv[2]))
task = sky.Task.from_yaml_config(document, env_overrides=[("HOME_URL", "s3:bucket/r")])
for one in task.resources:
    print(one.use_spot, one.job_recovery["recover_on_exit_codes"], one.job_recovery["max_restarts_on_errors"])
"""


def described(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((RECIPE / name).read_text()))


def sky(name: str, folder: Path, change: str = "{}") -> subprocess.CompletedProcess[str]:
    python = Path(os.environ.get("HOLDFAST_TEST_SKYPILOT_PYTHON", DEPS / "skypilot" / "bin" / "python"))
    if not python.exists():
        pytest.skip("there is no SkyPilot (HOLDFAST_AWS_NIGHTLY=1 cmake/bootstrap --aws)")
    return subprocess.run(
        [python, "-c", READ, RECIPE / name, change], cwd=RECIPE, capture_output=True, text=True, check=False,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["train.yaml", "sweep.yaml"])
def test_skypilot_reads_it(name: str, tmp_path: Path) -> None:
    done = sky(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"True [74, 75] 0"}


def test_skypilot_catches_a_wrong_key(tmp_path: Path) -> None:
    done = sky("train.yaml", tmp_path, "{recover: 75}")
    assert done.returncode != 0
    assert "recover" in done.stderr


def test_both_files_recover_alike() -> None:
    one, many = described("train.yaml"), described("sweep.yaml")
    assert one["resources"] == many["resources"]
    assert one["envs"] == many["envs"]
    assert one["setup"] == many["setup"]


@pytest.mark.parametrize(("rclone", "code"), [(0, 0), (1, 0), (3, 1)])
def test_a_bucket_that_is_not_there_ends_the_job(tmp_path: Path, rclone: int, code: int) -> None:
    """rclone: 3 is "directory not found". What may pass, or is for the mirror to say, ends nothing here."""
    program = tmp_path / "rclone"
    program.write_text(f"#!/bin/sh\nexit {rclone}\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME_URL": "s3:bucket/r"}
    done = subprocess.run(["bash", "-c", described("train.yaml")["setup"]], env=environment, check=False)
    assert done.returncode == code


def test_first_block(tmp_path: Path) -> None:
    for program in ("pip", "sky"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho {program} "$@" >>"{tmp_path}/told"\n')
        (tmp_path / program).chmod(0o755)
    subprocess.run(
        ["bash", "-eu", "-c", first_block(RECIPE / "README.md")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd=tmp_path, check=True,
    )  # fmt: skip
    words = (tmp_path / "told").read_text().splitlines()[-1].split()
    assert words[:3] == ["sky", "jobs", "launch"]
    assert words[-1] == "examples/skypilot/sweep.yaml"
    assert int(words[words.index("--num-jobs") + 1]) == len(
        (tmp_path / "sweep.jsonl").read_text().splitlines()
    )
    missing = {name for name, value in described("sweep.yaml")["envs"].items() if value is None}
    assert {words[words.index("--env") + 1].partition("=")[0]} == missing


def verdict(task: Task, code: int, lost: bool) -> str:
    if code == 0 and not lost:
        return "SUCCEEDED"
    recovers = described("sweep.yaml")["resources"]["job_recovery"]["recover_on_exit_codes"]
    return "again" if lost or code in recovers else "FAILED"


@pytest.mark.parametrize(
    ("code", "ends"), [(75, "again"), (74, "again"), (64, "FAILED"), (76, "FAILED"), (78, "FAILED")]
)
def test_recovers(code: int, ends: str) -> None:
    assert verdict(Task("r", [], {}, [], lambda: 0, lambda: None), code, False) == ends


@pytest.fixture
def bucket() -> Iterator[None]:
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield


@pytest.mark.parametrize(("runs", "machines", "kills"), [(4, 3, 12) if NIGHTLY else (2, 2, 2)])
def test_runs_outlive_their_machines(
    bucket: None, tmp_path: Path, runs: int, machines: int, kills: int
) -> None:
    need_programs()
    (tmp_path / "workdir").mkdir()
    file = Path(file_of(tmp_path / "workdir", runs))
    experiments = Experiments(file, "sweep1", tmp_path)
    asked = described("sweep.yaml")
    with S3Door(POLICY) as door:
        environment = {
            **asked["envs"],
            "HOME_URL": f"s3:{BUCKET}/sweep1",
            "RCLONE_CONFIG": "/dev/null",
            "HOLDFAST_SOURCES": "signal,file,deadline",
            **experiments.environment(door),
        }
        environment["RCLONE_CONFIG_S3_ENDPOINT"] = environment["RCLONE_CONFIG_HOLDFAST_ENDPOINT"]
        script = f'cp "{file.parent}"/* .\n{asked["run"]}'  # the workdir comes to each new machine
        tasks = experiments.tasks(["bash", "-c", script], environment, kills_of(runs, kills))
        order = {task.name: str(number) for number, task in enumerate(tasks)}
        managed = Contract(
            machines, 30, verdict, disk="HOME", index=lambda task: {"SKYPILOT_JOB_RANK": order[task.name]}
        )
        play(tasks, managed, tmp_path, patience=300 + 60 * kills)
        assert door.refused == []
    assert [task.ended for task in tasks] == ["SUCCEEDED"] * runs, [task.said[-1] for task in tasks]
    assert sum(task.attempts for task in tasks) == runs + kills
    experiments.must_have_the_bits_of_undisturbed_ones(tasks)
