"""Whole lives of a run with two tiers: what the machine commits to dies with it, each time.

    nvme    commits go to a folder that stands for the local drives, copies to the run's EBS volume, which moves
    s3      no volume: copies go to the bucket that `hf-aws up` made, by rclone, with the machine's rights

As in test_whole_life.py the machine's scripts, `holdfast supervise` and the example trainer are real; so is rclone. S3
is moto's, behind the door of s3_door.py. All this takes minutes: HOLDFAST_AWS_NIGHTLY=1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from disks import DiskAws, FolderDisks, Kernel, LoopDisks
from lab import A, B, C
from s3_door import S3Door
from stage import BIN, RUN, Stage
from strict import REGION
from test_metadata import Service, service  # noqa: F401
from test_whole_life import (
    NIGHTLY,
    TRAINER,
    command,
    completes,
    digest,
    killed_and_lost,
    losses,
    moved_by_its_user,
)

from holdfast_aws import bucket, machine
from holdfast_aws.finish import finish
from holdfast_aws.plan import LaunchPlan
from holdfast_aws.run_state import CHECKPOINT, checkpoints, read_home
from holdfast_aws.user_data import _environment

Life = Callable[["TieredStage"], None]


class TieredStage(Stage):
    """`durable` is what is home: nothing else survives `axe`."""

    changes: dict[str, object]

    def __init__(self, root: Path, kernel: Kernel, service: Service) -> None:  # noqa: F811
        super().__init__(root, kernel, service)
        self.run_env: dict[str, str] = {}

    def plan(self, command: Sequence[str]) -> LaunchPlan:
        return replace(super().plan(command), types=("p4d.24xlarge",), **self.changes)  # type: ignore[arg-type]

    def up(self, command: Sequence[str]) -> None:
        super().up(command)
        made = bucket.resolved(self.account(), self.plan(command))
        lines = (line.partition("=") for line in _environment(made).splitlines())
        kept = ("HF_S3", "HF_NVME", "RCLONE_")
        self.run_env = {n: value.strip("'") for n, _, value in lines if n.startswith(kept)}
        os.environ.update(self.run_env)  # for `hf` in this process
        self.rights._policy = made.policy

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.run_env, "HF_FAST": str(self.root / "fast")}

    def boots_in(self, zone: str, command: Sequence[str]) -> None:
        self.wipe()
        super().boots_in(zone, command)

    def wipe(self) -> None:
        """A new machine has empty drives."""
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def durable(self) -> int:
        home = read_home(self.run_dir)
        return home.newest.step if home and home.newest else -1


class NvmeStage(TieredStage):
    changes = {"nvme": True}  # noqa: RUF012

    def __init__(self, root: Path, kernel: Kernel, service: Service) -> None:  # noqa: F811
        super().__init__(root, kernel, service)
        self.run_dir = root / "fast" / "run"

    def newest_checkpoint(self) -> int:
        files = checkpoints(self.mount / "run")
        return int(files[0].name.split("-")[1]) if files else -1


class S3Stage(TieredStage):
    changes = {"home": "s3"}  # noqa: RUF012
    place = "home"
    door: S3Door

    def __init__(self, root: Path, kernel: Kernel, service: Service) -> None:  # noqa: F811
        super().__init__(root, kernel, service)
        self.mount.mkdir()

    def up(self, command: Sequence[str]) -> None:
        super().up(command)
        self.door.policy = self.rights._policy

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.door.environment(), "HOLDFAST_TERM_GRACE": "3s"}

    def objects(self) -> list[str]:
        place = bucket.place_of(f"s3://{self.run_env['HF_S3']}")
        return [thing["Key"] for thing in bucket.objects(self.account(), place)]

    def newest_checkpoint(self) -> int:
        place = bucket.place_of(f"s3://{self.run_env['HF_S3']}")
        names = (CHECKPOINT.fullmatch(key.removeprefix(f"{place.prefix}/run/")) for key in self.objects())
        return max(((int(match[2]), int(match[1])) for match in names if match), default=(0, -1))[1]

    def axe(self) -> None:
        """No volume is cut here: the mount point is a folder of this machine."""
        self._remember()
        self.end_processes()
        self.wipe()
        boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=[self.instance])
        self.kernel.sleep(1)


def staged(
    kind: type[TieredStage],
    service: Service,  # noqa: F811
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TieredStage]:
    if not NIGHTLY:
        pytest.skip("HOLDFAST_AWS_NIGHTLY=1 plays lives of two tiers")
    for name in ("holdfast", "resnet50_cifar10"):
        if not (BIN / name).exists():
            pytest.skip(f"{BIN / name} is not built")
    in_s3 = kind is S3Stage
    if in_s3 and shutil.which("rclone") is None:
        pytest.skip("no program rclone here")
    if not in_s3 and LoopDisks.why_not():
        pytest.skip(f"{LoopDisks.why_not()}: a home on EBS is told by its mount point")
    kernel = Kernel(root, FolderDisks(root) if in_s3 else LoopDisks(root))
    monkeypatch.setattr(machine, "SteadyClock", lambda: kernel)
    monkeypatch.setattr("stage.PATIENCE", 600.0)  # each step home takes half a dozen calls of rclone
    with DiskAws(kernel), S3Door({"Statement": []}) as door:
        made = kind(root, kernel, service)
        if isinstance(made, S3Stage):
            made.door = door
        for name, value in {
            "HF_RUN": RUN,
            "HF_IMDS": service.url,
            "HF_MOUNT": str(made.mount),
            "HF_FAST": str(root / "fast"),
            "HF_RUN_DIRS": str(made.run_dir),
            "HF_DEV_ROOT": str(root),
            "HF_SIZE_GIB": "1",
            "HF_GPU": "0",
            "HF_S3": "",
            "HF_NVME": "",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(machine, "run", made.systemctl)
        yield made
        made.end_processes()
        if not in_s3:
            kernel.disks.unplug(made.mount)
        kernel.end()
        for name in made.run_env:
            os.environ.pop(name, None)


@pytest.fixture
def nvme(
    service: Service,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TieredStage]:
    yield from staged(NvmeStage, service, tmp_path, monkeypatch)


@pytest.fixture
def s3(
    service: Service,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TieredStage]:
    yield from staged(S3Stage, service, tmp_path, monkeypatch)


# The lives.


def reclaimed_with_notice(stage: TieredStage) -> None:
    """What the trainer commits after the notice gets home before the machine goes."""
    stage.boots_in(A, command(stage))
    stage.trains(20)
    before = stage.durable()
    stage.announce(7)
    stage.until(lambda: stage.events("pause"), "the trainer pauses before its machine's end")
    stage.until(lambda: stage.durable() > before, "what it committed is home")
    stage.axe()


def play(stage: TieredStage, *lives: Life) -> None:
    stage.up(command(stage))
    for number, life in enumerate(lives, 1):
        if life is completes:
            stage.move("any")
        life(stage)
        if life is not completes:
            assert stage.desired() == 1, f"life {number} ended the run"


def uninterrupted(stage: TieredStage) -> tuple[str, dict[int, str]]:
    again = stage.root / "uninterrupted"
    done = subprocess.run(
        [*TRAINER, *("--steps", str(stage.acknowledged), "--checkpoint-dir", again, "--metrics", f"{again}.jsonl")],
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOLDFAST_SOURCES": "signal,file,deadline", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return digest(done.stdout.splitlines()[-1]), losses(Path(f"{again}.jsonl"))


def must_have_the_bits_of_one(stage: TieredStage) -> None:
    ours = next(line for line in stage.log.read_text().splitlines() if line.startswith("complete "))
    whole, of_each = uninterrupted(stage)
    assert digest(ours) == whole
    # What was not home when its machine went may lie beyond the end of the run.
    ours_of_each = losses(stage.mount / "training.jsonl")
    assert {
        at: bits for at, bits in ours_of_each.items() if at <= stage.acknowledged
    }.items() <= of_each.items()


LIVES: tuple[Life, ...] = (reclaimed_with_notice, killed_and_lost, moved_by_its_user)


def test_nvme_with_ebs_as_home(nvme: TieredStage) -> None:
    play(nvme, *LIVES, completes)
    assert nvme.zones == [A, B, C, C]
    current = nvme.book().current
    assert current is not None
    assert current.number == 3, "the volume moved with the machine, and stayed in its zone once"
    must_have_the_bits_of_one(nvme)


def test_home_in_s3(s3: S3Stage) -> None:
    play(s3, *LIVES, completes)
    assert s3.zones == [A, B, C, C]
    must_have_ended_in_s3(s3)


def must_have_ended_in_s3(s3: S3Stage) -> None:
    assert s3.kernel.aws.visible_volumes == {}, "nobody made a volume"
    assert s3.book().home == f"s3://{s3.run_env['HF_S3']}"
    must_have_the_bits_of_one(s3)
    assert s3.door.refused == []
    # All is kept; the user deletes it by the run's name twice.
    assert len([key for key in s3.objects() if ".h5" in key]) >= 2
    used = {action for action in s3.rights.asked if not action.startswith("ec2:")}
    assert used == s3.rights.asked, "a machine of such a run has no right to any volume"


def s3_is_away_at_the_end(stage: TieredStage) -> None:
    """The run completes while S3 refuses, and somebody stops the machine: the last checkpoint is not home."""
    assert isinstance(stage, S3Stage)
    last = stage.acknowledged + 40
    stage.boots_in(B, command(stage, last))
    stage.door.fault = lambda asked: 503 if asked.method in ("PUT", "POST") else None
    stage.until(lambda: (state := stage.state()) and state.phase == "complete", "the trainer completes")
    assert stage.trainer is not None
    stage.trainer.send_signal(signal.SIGTERM)
    assert stage.ends() == 0
    stage.door.fault = lambda asked: None
    stage.axe()


def goes_on_to_the_same_end(stage: TieredStage) -> None:
    stage.boots_in(C, command(stage, stage.acknowledged + 40))
    assert stage.ends() == 0
    assert stage.desired() == 0


def test_a_run_whose_last_checkpoint_is_not_home_is_not_at_its_end(s3: S3Stage) -> None:
    play(s3, reclaimed_with_notice, s3_is_away_at_the_end)
    goes_on_to_the_same_end(s3)
    must_have_the_bits_of_one(s3)


# Planted bugs: the lives above must notice.


def plant(stage: TieredStage, old: str, new: str) -> None:
    scripts = stage.root / "planted"
    shutil.copytree(stage.scripts, scripts)
    text = (scripts / "hf-run").read_text()
    assert old in text
    (scripts / "hf-run").write_text(text.replace(old, new))
    stage.scripts = scripts


def test_planted_home_of_each_machine_its_own(s3: S3Stage) -> None:
    plant(s3, "$HF_S3/$place", "$HF_S3/$place/attempts/x$$")
    with pytest.raises(AssertionError, match=r"step \d+ was acknowledged, -1 is there"):
        play(s3, *LIVES)


def test_planted_home_deleted_before_the_run_is_complete(s3: S3Stage) -> None:
    plant(
        s3, "export HOLDFAST_NOTICE_FILE",
        "rclone delete \"holdfast:$HF_S3/$name\" --include 'step-*'\nexport HOLDFAST_NOTICE_FILE",
    )  # fmt: skip
    with pytest.raises(AssertionError, match=r"\d+ was acknowledged, it goes on at 0"):
        play(s3, *LIVES)


def test_planted_mirror_left_out(nvme: TieredStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stage.PATIENCE", 60.0)
    plant(nvme, 'words+=(--mirror "$mount/$place" --home-mount "$mount")', ":")
    # Nothing gets home; the life waits for it. That takes the stage's whole patience.
    with pytest.raises(AssertionError, match="in vain: step 19 is durable"):
        play(nvme, *LIVES)


def test_planted_end_before_the_last_checkpoint_is_home(s3: S3Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "finish", lambda *words, **_: finish(*words))
    with pytest.raises(AssertionError, match="life 2 ended the run"):
        play(s3, reclaimed_with_notice, s3_is_away_at_the_end)
