"""Does the worker work? The kit page's scenarios 35 and 36."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_cloud import FakeCloud
from virtual import VirtualClock

from holdfast_aws import lease
from holdfast_aws.cloud import HOOK
from holdfast_aws.commands import Done, run
from holdfast_aws.health import Evidence, Health, trouble_of, trouble_of_all
from holdfast_aws.linux_host import LinuxHost
from holdfast_aws.settings import Settings
from holdfast_aws.stop import StopError
from holdfast_aws.worker import Progress, progress_of, read_ledger, read_progress
from holdfast_aws.world import Machine

NOW = 1_700_000_000.0


def line(event: str, up: float, **more: Any) -> str:
    return json.dumps({"event": event, "t": int((NOW + up) * 1000), "up_ms": int(up * 1000), **more})


def ledger_of(*parts: tuple[float, int]) -> list[str]:
    """Progress every 10 s: (seconds, step at their end) in a row."""
    lines, up, step = [line("start", 0, step=0, attempt=1)], 0.0, 0
    for seconds, end in parts:
        begin, first = up, step
        while up < begin + seconds:
            up += 10
            step = first + int((end - first) * (up - begin) / seconds)
            lines.append(line("progress", up, step=step))
    return lines


def test_a_step_that_moves_is_no_stall() -> None:
    told = progress_of(ledger_of((3600, 3600)))
    assert told.step == 3600
    assert told.standing == 0
    assert told.limit == 600


def test_a_step_that_stands_still() -> None:
    told = progress_of(ledger_of((600, 600), (700, 600)))
    assert told.standing == 700
    assert told.standing >= told.limit


def test_slow_but_moving_has_a_longer_limit() -> None:
    told = progress_of(ledger_of((6000, 60), (90, 60)))
    assert told.limit == 20 * 100
    assert told.standing < told.limit


def test_what_need_not_move_does_not_count() -> None:
    began = [line("start", 0, step=0)]
    evaluation = [line("progress", up, step=5, phase="evaluation") for up in range(10, 2000, 10)]
    assert progress_of(began + evaluation).standing == 0
    pause = [line("progress", 10, step=5), line("pause", 11, step=5, why="notice")]
    told = progress_of(began + pause + [line("progress", up, step=5) for up in range(20, 2000, 10)])
    assert (told.standing, told.last) == (0, None)
    gap = [line("progress", 10, step=5), line("progress", 900, step=5)]
    assert progress_of(began + gap).standing == 0
    ended = progress_of([*ledger_of((100, 9)), line("end", 101, code=75)])
    assert ended.last is None
    assert ended.told is not None


def test_foreign_and_torn_lines_are_passed_over() -> None:
    lines = ["", "[]", "null", "{", '{"event": 7, "up_ms": 3}', '{"event": "progress"}', "é" * 9]
    assert progress_of(lines + ledger_of((600, 60)) + lines).step == 60


def test_a_long_ledger_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger-a0001.jsonl"
    path.write_text("\n".join(ledger_of((200_000, 20_000), (800, 20_000))) + "\n" + '{"event": "pro')
    assert path.stat().st_size > 1 << 20
    told = read_ledger(path)
    assert told.step == 20_000
    assert told.standing == pytest.approx(800, abs=20)
    assert told.told == told.last
    assert read_ledger(tmp_path / "none").last is None


@pytest.mark.parametrize("signs", [True, False])
def test_a_save_longer_than_the_limit_is_no_hang(signs: bool, tmp_path: Path) -> None:
    """The ledger gets no line while a checkpoint is written."""
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts/1").touch()
    (tmp_path / "ledger-a0001.jsonl").write_text("\n".join(ledger_of((300, 300))) + "\n")
    if signs:
        (tmp_path / "attempts/1.progress.json").touch()
        os.utime(tmp_path / "attempts/1.progress.json", (NOW + 995, NOW + 995))
    told = read_progress(tmp_path)
    trouble = trouble_of(Evidence(now=NOW + 1000, active_for=1000.0, progress=told))
    later = trouble_of(Evidence(now=NOW + 1600, active_for=1600.0, progress=told))
    if signs:
        assert (trouble, later) == ("", "the worker has said nothing for 605 s")
    else:
        assert trouble == "the worker has said nothing for 700 s"


def evidence(**more: Any) -> Evidence:
    fields: dict[str, Any] = {"now": NOW, "active_for": 7200.0, "progress": Progress(9, 0, 600, NOW - 5)}
    return Evidence(**{**fields, **more})


def test_trouble_has_words() -> None:
    assert trouble_of(evidence()) == ""
    assert "step 9" in trouble_of(evidence(progress=Progress(9, 700, 600, NOW - 5)))
    assert "nothing for 900 s" in trouble_of(evidence(progress=Progress(9, 0, 600, NOW - 900)))
    for kind in ("gpu", "kernel", "volume"):
        assert trouble_of(evidence(**{kind: "broken"})) == "broken"


def test_a_service_that_is_not_active_is_systemds() -> None:
    assert trouble_of(evidence(active_for=None, gpu="broken")) == ""


def test_the_ledger_of_the_life_before_says_nothing() -> None:
    stood = Progress(9, 5000, 600, NOW - 700)
    assert trouble_of(evidence(progress=stood, active_for=60.0)) == ""
    # A new machine on the volume of one that was lost: it may copy data, or compile, for as long as it likes.
    assert trouble_of(evidence(progress=stood, active_for=650.0)) == ""
    assert trouble_of(evidence(progress=stood, active_for=701.0)) != ""
    assert trouble_of(evidence(progress=None)) == ""
    assert trouble_of(evidence(progress=Progress(-1, 0, 600, None))) == ""


@dataclass
class Box:
    """A machine with a worker, for Health."""

    path: Path
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOW))
    ran: list[str] = field(default_factory=list)
    answers: dict[str, Done] = field(default_factory=dict)
    leaving: str | None = None
    imds_fails: bool = False
    cloud_made: int = 0

    def __post_init__(self) -> None:
        self.cloud = FakeCloud(self.clock)
        self.cloud.capacity = {"r1-spot": 1}
        self.instance = self.cloud.launch("us-east-1a")
        mount = self.path / "mount"
        self.directory = mount / "run"
        (self.directory / "attempts").mkdir(parents=True)
        (self.directory / "attempts" / "1").touch()
        (self.path / "proc").mkdir()
        (self.path / "proc" / "uptime").write_text("7200.00 1.0\n")
        self.answers = {
            "systemctl show": Done(0, "ActiveState=active\nActiveEnterTimestampMonotonic=1000000"),
            "nvidia-smi -L": Done(0, "GPU 0: Tesla"),
        }
        lease.take(mount, self.instance, "boot")
        self.settings = Settings("r1", mount=mount, run_dirs=(self.directory,), dev_root=self.path)
        self.trains()

    def trains(self, standing: float = 0) -> None:
        up = self.clock.now() - NOW
        parts = [line("start", up - 5000, step=0)]
        parts += [line("progress", up - 5000 + s, step=s) for s in range(0, int(5000 - standing), 10)]
        parts += [line("progress", up - standing + s, step=4999) for s in range(0, int(standing) + 1, 10)]
        (self.directory / "ledger-a0001.jsonl").write_text("\n".join(parts) + "\n")

    def run(self, command: Sequence[str], limit: float) -> Done:
        text = " ".join(command)
        self.ran.append(text)
        return next((done for begin, done in self.answers.items() if text.startswith(begin)), Done(0, ""))

    def make_cloud(self) -> FakeCloud:
        self.cloud_made += 1
        return self.cloud

    def get(self, path: str) -> str | None:
        if self.imds_fails:
            raise StopError(75, "no answer")
        return self.leaving if path == "autoscaling/target-lifecycle-state" else None

    def machine(self) -> Machine:
        return Machine(self.instance, "us-east-1a", "us-east-1")

    def tick(self) -> int:
        memory = self.path / "health.json"
        metadata: Any = self
        return Health(
            self.make_cloud, self.clock, self.settings, metadata, self.run, memory, lambda _: None
        ).tick()

    def restarts(self) -> int:
        return self.ran.count("systemctl restart holdfast.service")


def test_a_healthy_tick_makes_no_call_to_aws(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for _ in range(3):
        assert box.tick() == 0
        box.clock.sleep(30)
        box.trains()
    assert box.cloud_made == 0
    assert box.restarts() == 0


def test_a_stall_restarts_and_a_second_one_within_the_hour_is_unhealthy(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.trains(standing=700)
    assert box.tick() == 0
    assert box.restarts() == 1
    assert box.cloud_made == 0
    box.clock.sleep(1800)
    box.trains(standing=700)
    box.tick()
    assert box.restarts() == 1
    assert box.cloud.instances[box.instance].health == "Unhealthy"
    assert box.cloud.metrics == ["worker_unhealthy"]


def test_a_stall_an_hour_later_restarts_again(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.trains(standing=700)
    box.tick()
    box.clock.sleep(3700)
    box.trains(standing=700)
    box.tick()
    assert box.restarts() == 2
    assert box.cloud_made == 0


@pytest.mark.parametrize(
    "answers",
    [
        {"nvidia-smi -L": Done(9, "Unable to determine the device handle")},
        {"nvidia-smi -L": Done(0, "No devices were found")},
        {"nvidia-smi -L": Done(124, "did not end")},
        {"journalctl": Done(0, "x\nNVRM: Xid (PCI:0000:00:1e): 79, pid=1, GPU has fallen off the bus.")},
        {"journalctl": Done(0, "NVRM: Xid (PCI:0000:00:1e): 48, DBE")},
    ],
)
def test_a_broken_gpu_is_trouble(tmp_path: Path, answers: dict[str, Done]) -> None:
    box = Box(tmp_path)
    box.tick()
    assert box.restarts() == 0
    box.answers.update(answers)
    box.clock.sleep(30)
    box.trains()
    box.tick()
    assert box.restarts() == 1


def test_the_programs_own_xid_is_none(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.tick()
    box.answers["journalctl"] = Done(0, "NVRM: Xid (PCI:0000:00:1e): 13, Graphics Exception")
    box.tick()
    assert box.restarts() == 0


def test_a_run_without_gpu_needs_none(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.settings = Settings(
        "r1", mount=box.settings.mount, run_dirs=(box.directory,), gpu=False, dev_root=tmp_path
    )
    box.answers["nvidia-smi -L"] = Done(127, "")
    box.tick()
    assert box.restarts() == 0


def test_a_volume_that_takes_no_writes_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(tmp_path)

    def broken(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(lease, "renew", broken)
    box.tick()
    assert box.restarts() == 1


def test_a_full_volume_is_no_trouble_of_the_machine(tmp_path: Path) -> None:
    """A small tmpfs stands for it."""
    box = Box(tmp_path)
    mount = box.settings.mount
    done = run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], 30)
    if done.code != 0:
        pytest.skip(f"nothing can be mounted here: {done.out}")
    try:
        lease.take(mount, box.instance, "boot")
        (mount / "run").mkdir()
        with contextlib.suppress(OSError), (mount / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            lease.take(mount, box.instance, "boot")
        assert box.tick() == 0
        assert box.restarts() == 0
        with pytest.raises(StopError, match="the volume is full") as stop:
            LinuxHost(box.settings, box.instance).take_lease()
        assert stop.value.code == 78
    finally:
        run(["umount", str(mount)], 30)


def test_the_third_machine_in_a_row_that_hangs_is_parked(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.cloud.registers = {"/holdfast/r1/given-up/1": "i-1", "/holdfast/r1/given-up/2": "i-2"}
    box.trains(standing=700)
    box.tick()
    box.clock.sleep(1800)
    box.trains(standing=700)
    assert box.tick() == 0
    assert box.cloud.instances[box.instance].health == "Healthy"
    assert box.ran[-2:] == ["systemctl stop holdfast.service", "systemctl start --no-block hf-park.service"]
    assert box.cloud.registers["/holdfast/r1/given-up/3"] == box.instance


def test_machines_that_were_given_up_before_one_trained_do_not_count(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for number, word in enumerate(("i-1", "i-2", "trains:i-3"), 1):
        box.cloud.registers[f"/holdfast/r1/given-up/{number}"] = word
    box.trains(standing=700)
    box.tick()
    box.clock.sleep(1800)
    box.trains(standing=700)
    box.tick()
    assert box.cloud.instances[box.instance].health == "Unhealthy"


def test_the_lease_stays_young(tmp_path: Path) -> None:
    box = Box(tmp_path)
    before = (box.settings.mount / lease.NAME).stat().st_mtime_ns
    box.tick()
    after = box.settings.mount / lease.NAME
    assert after.stat().st_mtime_ns >= before
    assert lease.owner(box.settings.mount) == (box.instance, "boot")


@pytest.mark.parametrize(
    ("others", "restarts"),
    [
        ([Progress(9, 0, 600, NOW - 5, NOW - 5)], 0),  # one trains
        ([Progress(9, 0, 600, None, NOW - 5)], 0),  # one has just ended, and the next one begins
        ([Progress(9, 700, 600, NOW - 5, NOW - 5)], 1),  # all hang
        ([Progress(9, 0, 600, NOW - 900, NOW - 900)], 1),
        ([Progress(9, 0, 600, None, NOW - 900)], 1),  # the others have ended long ago
        ([Progress(-1, 0, 600, None)], 1),  # or not begun
        ([], 1),
    ],
)
def test_a_sweep_is_in_trouble_when_none_of_its_runs_moves(others: list[Progress], restarts: int) -> None:
    hangs = Progress(9, 700, 600, NOW - 5, NOW - 5)
    trouble = trouble_of_all([evidence(progress=each) for each in (hangs, *others)])
    assert bool(trouble) == bool(restarts)


def test_trouble_of_the_machine_is_trouble_of_a_sweep() -> None:
    trains = Progress(9, 0, 600, NOW - 5, NOW - 5)
    assert trouble_of_all([evidence(progress=trains, gpu="broken")] * 2) == "broken"


def test_each_run_of_a_sweep_is_looked_at(tmp_path: Path) -> None:
    box = Box(tmp_path)
    other = box.settings.mount / "other"
    other.mkdir()
    box.settings = Settings(
        "r1", mount=box.settings.mount, run_dirs=(other, box.directory), dev_root=tmp_path
    )
    box.trains(standing=700)
    box.tick()
    assert [c for c in box.ran if "restart" in c] == ["systemctl restart holdfast.service"]


def test_a_group_that_terminates_gets_the_volume_back_in_order(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.leaving = "Terminated"
    assert box.tick() == 0
    assert box.ran == ["systemctl stop holdfast.service", "systemctl stop holdfast-volume.service"]
    assert box.cloud.hooks_completed == [("r1-spot", HOOK, box.instance)]


def test_a_lifecycle_in_service_is_no_end(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.leaving = "InService"
    box.tick()
    assert not [command for command in box.ran if "stop" in command]
    box.imds_fails = True
    assert box.tick() == 0
