"""The double in memory does what the strict one does: the same scenarios, with the machine's real calls, end alike
after the same changes. And the moves that matter most are killed everywhere on the strict one, too."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from fake_cloud import FakeCloud, Times
from lab import READS, A, B, C, Lab, Machine
from scenarios import SCENARIOS
from strict_cloud import StrictCloud
from virtual import VirtualClock

from holdfast_aws.cloud import CloudError, VolumeSpec
from holdfast_aws.world import Limits

STRIDE = 1 if os.environ.get("HOLDFAST_AWS_NIGHTLY") else 11  # at each eleventh point
LIMITS = Limits(release=25, snapshot=60, create=40, lease=10, settle=3, total=120)


def lab_on(double: Any) -> Lab:
    return Lab(double, Times(lost=12, snapshot=8), LIMITS)


def played(double: Any, name: str) -> tuple[list[str], list[int | None], list[str]]:
    """What changed, how each machine ended, and the registers; with names in the order of their appearance."""
    lab = lab_on(double)
    try:
        machine: Machine = SCENARIOS[name](lab)
        machine.start()
        lab.turns.run()
        changes = [line for line in lab.log if line.split()[1] not in READS]
        book = [f"{key} {value}" for key, value in sorted(lab.double.parameters("/holdfast/r1").items())]
        codes = [each.code for each in lab.machines]
    finally:
        getattr(lab.double, "__exit__", lambda: None)()
    known: dict[str, str] = {}

    def plain(line: str) -> str:
        return re.sub(
            r"\b(i|vol|snap)-[0-9a-f]+", lambda m: known.setdefault(m[0], f"{m[1]}-{len(known)}"), line
        )

    return [plain(line) for line in changes], codes, [plain(line) for line in book]


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_doubles_play_alike(name: str) -> None:
    assert played(FakeCloud, name) == played(StrictCloud, name)


def test_both_doubles_refuse_alike() -> None:
    """One wrong call after the other."""
    answers = []
    for double in (FakeCloud, StrictCloud):
        clock = VirtualClock()
        cloud = double(clock, Times())
        try:
            answers.append(_refusals(cloud, clock))
        finally:
            getattr(cloud, "__exit__", lambda: None)()
    assert answers[0] == answers[1]
    assert None not in answers[0][1:]


def _refusals(cloud: Any, clock: VirtualClock) -> list[str | None]:
    here, there = cloud.launch(A), cloud.launch(B)
    gone = cloud.launch(A)
    cloud.terminate(gone)

    def spec(token: str, zone: str = A, throughput: int = 125, snapshot: str = "") -> VolumeSpec:
        return VolumeSpec(zone, 8, 3000, throughput, token, {"owner": "test"}, snapshot)

    def code(call: Any) -> str | None:
        try:
            call()
        except CloudError as error:
            return error.code
        return None

    one = cloud.create_volume(spec("one"))
    told = [code(lambda: cloud.create_volume(spec("one")))]
    told.append(code(lambda: cloud.create_volume(spec("one", B))))
    told.append(code(lambda: cloud.attach(one, here, "/dev/sdf")))
    clock.sleep(10)
    told.append(code(lambda: cloud.attach(one, there, "/dev/sdf")))
    told.append(code(lambda: cloud.attach(one, gone, "/dev/sdf")))
    told.append(code(lambda: cloud.detach(one, here)))
    cloud.attach(one, here, "/dev/sdf")
    told.append(code(lambda: cloud.attach(one, here, "/dev/sdg")))
    told.append(code(lambda: cloud.detach(one, there)))
    two = cloud.create_volume(spec("two"))
    clock.sleep(10)
    told.append(code(lambda: cloud.attach(two, here, "/dev/sdf")))
    told.append(code(lambda: cloud.create_volume(spec("three", "us-west-2z"))))
    told.append(code(lambda: cloud.create_volume(spec("four", throughput=2000))))
    told.append(code(lambda: cloud.create_volume(spec("five", throughput=1000))))
    told.append(code(lambda: cloud.volume("vol-00000000000000000")))
    snapshot = cloud.create_snapshot(one, {"owner": "test"}, "")
    told.append(code(lambda: cloud.create_volume(spec("six", snapshot=snapshot))))
    cloud.volume_limit = 2
    told.append(code(lambda: cloud.create_volume(spec("seven"))))
    return told


def test_the_real_calls_ask_for_gp3_and_its_figures() -> None:
    lab = lab_on(StrictCloud)
    with lab.double:
        machine = SCENARIOS["move"](lab)
        assert machine.boot() == 0
        for volume in lab.double.ids()[0]:
            made = lab.double.strict.ec2().volumes[volume]
            assert made.volume_type == "gp3"
            assert (int(made.iops), int(made.throughput)) == (6000, 500)


def test_the_real_calls_create_a_register_once() -> None:
    lab = lab_on(StrictCloud)
    with lab.double:
        assert lab.double.put_once("/holdfast/r1/gen/1/claim", "i-1")
        assert not lab.double.put_once("/holdfast/r1/gen/1/claim", "i-2")
        assert lab.double.parameters("/holdfast/r1") == {"/holdfast/r1/gen/1/claim": "i-1"}


def test_the_real_calls_read_more_registers_than_a_page_holds() -> None:
    lab = lab_on(StrictCloud)
    with lab.double:
        machine = SCENARIOS["first_boot"](lab)
        assert machine.boot() == 0
        for number in range(2, 9):
            lab.double.put_once(f"/holdfast/r1/gen/{number}/claim", "i-1")
            lab.double.put_once(f"/holdfast/r1/gen/{number}/outcome", "cancel:i-1")
        assert lab.book().top == 8
        machine.lose()
        lab.turns.sleep_alone(20)
        lab.settle(B)
        assert lab.book().current.number == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["first_boot", "move"])
def test_killed_everywhere_with_the_real_calls(name: str) -> None:
    """What follows takes turns. The double in memory does all of it, test_kill_everywhere.py."""
    lab = lab_on(StrictCloud)
    with lab.double:
        machine = SCENARIOS[name](lab)
        before = machine.points
        machine.boot()
        points = machine.points - before
    for point in range(1, points + 1, STRIDE):
        lab = lab_on(StrictCloud)
        with lab.double:
            machine = SCENARIOS[name](lab)
            machine.kill_at = machine.points + point
            assert machine.boot() is None
            machine.kill_at = None
            then = ("process", A, B, C)[point // STRIDE % 4]
            if then == "process":
                machine.boot()
                lab.settle(C)
            else:
                lab.settle(then)
