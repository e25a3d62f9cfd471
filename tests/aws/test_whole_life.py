"""A run from `hf-aws up` to its own end: five lives over three zones, the kit page's scenario 39.

Real are the state machine, its calls to the strict double, the file systems, the kit's scripts, `holdfast supervise`
and the example trainer. In the end the trained state has the bits of a run that nothing interrupted. Each life is
short: the trainer is told its last step only in the last one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disks import DiskAws, FolderDisks, FolderHost, Kernel, LoopDisks
from lab import A, B, C
from stage import BIN, Stage
from test_metadata import Service, service  # noqa: F401

from holdfast_aws import linux_host, machine
from holdfast_aws.aws import Aws
from holdfast_aws.cloud import LEAD_TAG
from holdfast_aws.finish import _set_to_zero
from holdfast_aws.policy import instance_policy

Life = Callable[[Stage], None]
TRAINER = (
    *("resnet50_cifar10", "--data", "synthetic:256", "--width", "4", "--batch-size", "32", "--lr", "0.05"),
    *("--threads", "1", "--workers", "0", "--schedule-steps", "2000"),
)
ON_THE_MACHINE = ("--checkpoint-dir", "{run_dir}", "--every", "10steps", "--on-risk")
FOR_EVER = 1_000_000  # steps
NIGHTLY = "HOLDFAST_AWS_NIGHTLY" in os.environ


@pytest.fixture(params=["on loop devices", "in folders"])
def stage(
    request: pytest.FixtureRequest,
    service: Service,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    for name in ("holdfast", "resnet50_cifar10"):
        if not (BIN / name).exists():
            pytest.skip(f"{BIN / name} is not built")
    why_not = LoopDisks.why_not()
    in_folders = request.param == "in folders"
    if not in_folders and why_not:
        pytest.skip(f"{why_not}: the lives are played in folders, where a power cut loses nothing")
    if in_folders and not why_not and not NIGHTLY:
        pytest.skip("loop devices work here (HOLDFAST_AWS_NIGHTLY=1 plays the lives in folders, too)")
    kernel = Kernel(tmp_path, FolderDisks(tmp_path) if in_folders else LoopDisks(tmp_path))
    if in_folders:
        monkeypatch.setattr(linux_host, "LinuxHost", FolderHost)
    for name, value in {
        "HF_RUN": "r1",
        "HF_IMDS": service.url,
        "HF_MOUNT": str(tmp_path / "mount"),
        "HF_DEV_ROOT": str(tmp_path),
        "HF_SIZE_GIB": "1",
        "HF_GPU": "0",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine, "SteadyClock", lambda: kernel)
    with DiskAws(kernel):
        made = Stage(tmp_path, kernel, service)
        monkeypatch.setattr(machine, "run", made.systemctl)
        yield made
        made.end_processes()
        kernel.disks.unplug(made.mount)
        kernel.end()


def command(stage: Stage, steps: int = FOR_EVER) -> list[str]:
    hook = f"{stage.root}/home/hf lead-snapshot"
    metrics = ("--metrics", f"{stage.mount}/training.jsonl")
    return [*TRAINER, *ON_THE_MACHINE, hook, *metrics, "--steps", str(steps)]


# The lives.


def reclaimed_with_notice(stage: Stage) -> None:
    """The notice comes by the metadata service: the trainer commits, trains on, commits again and waits."""
    stage.boots_in(A, command(stage))
    stage.trains(20)
    before = stage.durable()
    stage.announce(7)
    stage.until(lambda: stage.events("pause"), "the trainer pauses before its machine's end")
    assert stage.durable() > before
    stage.axe()


def killed_and_lost(stage: Stage) -> None:
    """The trainer dies and its supervisor starts it again; then the machine goes without a word."""
    stage.boots_in(B, command(stage))
    stage.trains(20)
    (trainer,) = stage.pids("resnet50_cifar10")
    os.kill(trainer, 9)
    stage.until(lambda: stage.attempts[-1] < attempt_of(stage), "the supervisor starts the trainer again")
    stage.trains(20)
    stage.axe()


def moved_by_its_user(stage: Stage) -> None:
    """`hf-aws move`: the group's hook waits while the trainer commits and the volume is given back."""
    stage.boots_in(C, command(stage))
    stage.trains(20)
    stage.move(A)
    stage.kernel.sleep(30)
    stage.service.answers["autoscaling/target-lifecycle-state"] = "Terminated"
    assert stage.hf("health") == 0
    assert stage.trainer is not None
    assert stage.trainer.returncode == 75
    assert not stage.mount.is_mount()
    assert stage.instance not in [each["InstanceId"] for each in stage.machines()], "the hook holds it"


def at_risk_then_lost(stage: Stage) -> None:
    """A rebalance recommendation: the trainer's hook takes a snapshot, which no later move may restore."""
    stage.boots_in(A, command(stage))
    stage.trains(20)
    stage.service.answers["events/recommendations/rebalance"] = json.dumps(
        {"noticeTime": "2026-01-01T00:00:00Z"}
    )
    stage.until(lambda: lead_snapshots(stage), "the hook takes a snapshot")
    stage.kernel.sleep(100)  # it completes
    stage.trains(20)
    stage.rehearse(6)
    stage.until(lambda: stage.events("pause"), "the trainer pauses before its machine's end")
    stage.axe()


def completes(stage: Stage) -> None:
    zone = B if stage.zones[-1:] == [A] else C
    last = stage.acknowledged + 30
    stage.boots_in(zone, command(stage, last))
    assert stage.ends() == 0
    assert stage.hooks[-1] == "finish --exit-code 0"
    assert stage.desired() == 0
    assert stage.acknowledged == last


def attempt_of(stage: Stage) -> int:
    state = stage.state()
    return state.attempt if state else 0


def lead_snapshots(stage: Stage) -> list[Any]:
    return [s for s in stage.account().snapshots("r1") if {"Key": LEAD_TAG, "Value": "1"} in s["Tags"]]


def play(stage: Stage, *lives: Life) -> None:
    stage.up(command(stage))
    for number, life in enumerate(lives, 1):
        if life is completes:
            stage.move("any")
        life(stage)
        if life is not completes:
            assert stage.desired() == 1, f"life {number} ended the run"
            assert not [hook for hook in stage.hooks if "finish" in hook]
        current = stage.book().current
        assert current is not None
        assert (current.number, current.zone) == (number, stage.zones[-1])


# The tests.


def losses(metrics: Path) -> dict[int, str]:
    """The bits of each step's loss; a step that was computed twice had the same."""
    found: dict[int, str] = {}
    for line in metrics.read_text().splitlines():
        if line.endswith("}"):  # else torn by the axe
            told = json.loads(line)
            assert found.setdefault(told["step"], told["loss_bits"]) == told["loss_bits"], told["step"]
    return found


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def digest(line: str) -> str:
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    assert line.startswith("complete "), line
    return words["state"]


def test_five_lives_end_with_the_bits_of_one(stage: Stage) -> None:
    play(stage, reclaimed_with_notice, killed_and_lost, moved_by_its_user, at_risk_then_lost, completes)
    assert stage.zones == [A, B, C, A, B]
    assert len(stage.attempts) == 5
    ours = next(line for line in stage.log.read_text().splitlines() if line.startswith("complete "))
    again = stage.root / "uninterrupted"
    done = subprocess.run(
        [*TRAINER, *("--steps", str(stage.acknowledged), "--checkpoint-dir", again, "--metrics", f"{again}.jsonl")],
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOLDFAST_SOURCES": "signal,file,deadline", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert digest(ours) == digest(done.stdout.splitlines()[-1])
    # The metrics are no checkpoint: a lost machine takes its last lines with it.
    trained, whole = losses(stage.mount / "training.jsonl"), losses(Path(f"{again}.jsonl"))
    assert trained.items() <= whole.items()
    assert max(trained) == stage.acknowledged
    # Nothing was deleted; each move has left its source behind, and nothing runs any more.
    assert not [call for call in stage.kernel.aws.log if call.startswith("Delete")]
    assert len(stage.kernel.aws.visible_volumes) == 5
    assert stage.hf("volume", "down") == 0
    stage.kernel.sleep(900)
    assert stage.machines() == []
    # All this with the machine's own rights; those that it never needed are for lives that fail.
    granted = {action for one in instance_policy("r1")["Statement"] for action in as_list(one["Action"])}
    assert granted - stage.rights.asked == {
        *("autoscaling:DescribeLifecycleHooks", "autoscaling:RecordLifecycleActionHeartbeat"),
        *("autoscaling:SetInstanceHealth", "cloudwatch:PutMetricData", "ec2:DeleteSnapshot"),
    }


# Planted bugs: the lives above must notice.


def test_planted_move_restores_an_older_snapshot(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Aws.create_snapshot

    def older(cloud: Aws, volume: str, tags: dict[str, str], text: str) -> str:
        known = [snapshot.id for snapshot in cloud.snapshots("r1") if snapshot.volume == volume]
        return known[0] if known else real(cloud, volume, tags, text)

    monkeypatch.setattr(Aws, "create_snapshot", older)
    with pytest.raises(AssertionError, match=r"step \d+ was acknowledged, \d+ is there"):
        play(stage, at_risk_then_lost, completes)


def test_planted_finish_before_the_run_is_complete(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two guards stand before it: what calls `hf finish`, and what `hf finish` asks."""
    scripts = stage.root / "planted"
    shutil.copytree(stage.scripts, scripts)
    ended = scripts / "hf-ended"
    ended.write_text(ended.read_text().replace("exited/0)", "exited/*)"))
    stage.scripts = scripts
    monkeypatch.setattr(
        machine, "finish", lambda *words, **_: _set_to_zero(*words[:3], "finish_failed", words[5])
    )
    with pytest.raises(AssertionError, match="life 1 ended the run"):
        play(stage, moved_by_its_user)


def test_planted_policy_without_a_right(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = stage.rights._policy
    policy["Statement"] = [one for one in policy["Statement"] if one["Sid"] != "FromOurSnapshot"]
    with pytest.raises(AssertionError):
        play(stage, killed_and_lost, moved_by_its_user)
    assert len(stage.zones) == 2
