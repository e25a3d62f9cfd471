"""The end of a run: the kit page's scenarios 24, 25 and 26, and parking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from crew import FakeGroup
from fake_cloud import FakeCloud
from lab import RUN
from strict import REGION, StrictAws
from virtual import VirtualClock

from holdfast_aws.aws import Aws
from holdfast_aws.cloud import CloudError, Group
from holdfast_aws.finish import finish, park
from holdfast_aws.registers import Registers
from holdfast_aws.run_state import newest_attempt, read_state
from holdfast_aws.standby import where_another_trains

TORN = '{"attempt": 1, "phase": "comp'
STATES: dict[str, str | None] = {
    "complete": json.dumps({"attempt": 1, "phase": "complete", "step": 9, "durable_step": 9, "exit_code": 0}),
    "complete with a code": json.dumps({"attempt": 1, "phase": "complete", "exit_code": 74}),
    "interrupted": json.dumps({"attempt": 1, "phase": "interrupted", "exit_code": 75}),
    "running": json.dumps({"attempt": 1, "phase": "running"}),
    "failed": json.dumps({"attempt": 1, "phase": "failed", "exit_code": 74}),
    "torn": TORN,
    "no object": "[]",
    "missing": None,
}


def run_directory(path: Path, state: str | None, attempt: int = 1) -> Path:
    (path / "attempts").mkdir(parents=True)
    (path / "attempts" / str(attempt)).touch()
    if state is not None:
        (path / "attempts" / f"{attempt}.state.json").write_text(state)
        (path / "RUN_STATE.json").write_text(state)
    return path


def cloud_with_two_groups() -> FakeCloud:
    cloud = FakeCloud(VirtualClock())
    cloud.capacity = {f"{RUN}-spot": 1, f"{RUN}-on-demand": 1, "other": 3}
    return cloud


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("code", [0, 75, 74, 78, 137, 1, None])
def test_one_cell_of_the_matrix_ends_the_run(tmp_path: Path, state: str, code: int | None) -> None:
    cloud = cloud_with_two_groups()
    directory = run_directory(tmp_path / "run", STATES[state])
    ended = state == "complete" and code == 0
    # 0 without an end: nothing trains here any more, and somebody must know.
    assert finish(cloud, cloud.clock, RUN, [directory], code, lambda _: None) == (
        78 if code == 0 and not ended else 0
    )
    assert cloud.capacity == {
        f"{RUN}-spot": 0 if ended else 1,
        f"{RUN}-on-demand": 0 if ended else 1,
        "other": 3,
    }


def test_all_runs_of_a_sweep_must_be_complete(tmp_path: Path) -> None:
    cloud = cloud_with_two_groups()
    directories = [
        run_directory(tmp_path / "run-0", STATES["complete"]),
        run_directory(tmp_path / "run-1", STATES["running"]),
    ]
    assert finish(cloud, cloud.clock, RUN, directories, 0, lambda _: None, busy=lambda: True) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 1


def test_a_state_that_another_node_writes_late_is_waited_for(tmp_path: Path) -> None:
    cloud = cloud_with_two_groups()
    directory = run_directory(tmp_path / "run", STATES["running"])

    def look() -> bool:
        if cloud.clock.now() > begin + 100:
            (directory / "attempts" / "1.state.json").write_text(str(STATES["complete"]))
        return False

    begin = cloud.clock.now()
    assert finish(cloud, cloud.clock, RUN, [directory], 0, lambda _: None, busy=look) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 0


def test_an_older_attempt_cannot_declare_the_run_complete(tmp_path: Path) -> None:
    directory = run_directory(tmp_path / "run", STATES["complete"])
    (directory / "attempts" / "2").touch()
    assert newest_attempt(directory) == 2
    assert read_state(directory) is None
    cloud = cloud_with_two_groups()
    finish(cloud, cloud.clock, RUN, [directory], 0, lambda _: None)
    assert cloud.capacity[f"{RUN}-spot"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "step-000000000009-a0002.h5",
        "step-000000000009-a0002.h5.damaged",
        "step-000000000009-a0002.h5.damaged-2",
        "tmp-a0002-x",
        "attempts/2.state.json",
    ],
)
def test_every_name_of_an_attempt_counts(tmp_path: Path, name: str) -> None:
    directory = run_directory(tmp_path / "run", STATES["complete"])
    (directory / name).touch()
    assert newest_attempt(directory) == 2
    assert read_state(directory) is None


def test_the_copy_is_believed_when_it_names_the_newest_attempt(tmp_path: Path) -> None:
    directory = run_directory(tmp_path / "run", STATES["complete"])
    (directory / "attempts" / "1.state.json").write_text(TORN)
    state = read_state(directory)
    assert state is not None
    assert state.phase == "complete"


class Failing:
    """A double whose SetDesiredCapacity fails so many times."""

    def __init__(self, cloud: FakeCloud, times: int) -> None:
        self.cloud = cloud
        self.left = times

    def __getattr__(self, method: str) -> object:
        if method == "set_desired" and self.left > 0:
            self.left -= 1
            raise CloudError("ServiceUnavailable")
        return getattr(self.cloud, method)


def test_nine_failures_then_the_run_ends(tmp_path: Path) -> None:
    cloud = cloud_with_two_groups()
    directory = run_directory(tmp_path / "run", STATES["complete"])
    assert finish(Failing(cloud, 9), cloud.clock, RUN, [directory], 0, lambda _: None) == 0  # type: ignore[arg-type]
    assert cloud.capacity[f"{RUN}-spot"] == 0


def test_a_failure_that_lasts_is_said_and_counted(tmp_path: Path) -> None:
    cloud = cloud_with_two_groups()
    directory = run_directory(tmp_path / "run", STATES["complete"])
    said: list[str] = []
    begin = cloud.clock.now()
    assert finish(Failing(cloud, 10**6), cloud.clock, RUN, [directory], 0, said.append) == 75  # type: ignore[arg-type]
    assert cloud.metrics == ["finish_failed"]
    assert "costs money" in said[-1]
    assert cloud.clock.now() - begin == 270


def test_a_run_without_groups_is_not_taken_for_ended(tmp_path: Path) -> None:
    cloud = FakeCloud(VirtualClock())
    directory = run_directory(tmp_path / "run", STATES["complete"])
    assert finish(cloud, cloud.clock, RUN, [directory], 0, lambda _: None) == 75


def test_an_answer_that_is_not_read_back_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = cloud_with_two_groups()
    monkeypatch.setattr(cloud, "set_desired", lambda *_: None)
    directory = run_directory(tmp_path / "run", STATES["complete"])
    assert finish(cloud, cloud.clock, RUN, [directory], 0, lambda _: None) == 75


ME = "i-0abc"
SINCE, OUTCOME = f"/holdfast/{RUN}/parked/{ME}/since", f"/holdfast/{RUN}/parked/{ME}/outcome"


def test_parking_waits_and_keeps_all() -> None:
    cloud = cloud_with_two_groups()
    begin = cloud.clock.now()
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert cloud.clock.now() - begin == 1800
    assert cloud.metrics == ["needs_human"]
    assert cloud.capacity[f"{RUN}-spot"] == 0
    assert cloud.capacity[f"{RUN}-on-demand"] == 1, "a machine of another kind may train"
    assert cloud.registers[SINCE].startswith("2023-11-14T")
    assert cloud.registers[OUTCOME] == "end"


@pytest.mark.parametrize("when", [0, 900], ids=["before it waits", "while it waits"])
def test_what_trains_again_or_leaves_is_not_parked(when: float) -> None:
    cloud = cloud_with_two_groups()
    begin = cloud.clock.now()

    def trains() -> str:
        return "holdfast.service trains" if cloud.clock.now() >= begin + when else ""

    assert park(cloud, cloud.clock, RUN, ME, lambda _: None, why_not=trains) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 1
    assert cloud.metrics == (["needs_human"] if when else [])
    assert cloud.registers.get(OUTCOME) == ("trains" if when else None)


def test_a_machine_may_be_parked_again() -> None:
    """A person has started the trainer there, and it failed again."""
    cloud = cloud_with_two_groups()
    until = cloud.clock.now() + 900

    def later() -> str:
        return "holdfast.service trains" if cloud.clock.now() > until else ""

    park(cloud, cloud.clock, RUN, ME, lambda _: None, why_not=later)
    registers = Registers(cloud, RUN)
    assert registers.read().parked == {ME: "trains"}
    registers.park(ME, "2026-11-29")
    assert registers.read().parked == {ME: ""}
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert registers.read().parked == {ME: "end"}
    assert cloud.registers[f"/holdfast/{RUN}/parked/{ME}/2/outcome"] == "end"
    assert cloud.capacity[f"{RUN}-spot"] == 0


def test_a_parked_machine_that_up_replaces_ends_nothing() -> None:
    cloud = cloud_with_two_groups()
    cloud.registers[OUTCOME] = "up"
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 1


def test_parking_that_was_killed_at_its_end_ends_the_run() -> None:
    cloud = cloud_with_two_groups()
    cloud.registers[OUTCOME] = "end"
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 0


def test_parking_without_registers_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = cloud_with_two_groups()

    def refuses(*_: str) -> bool:
        raise CloudError("Timeout")

    monkeypatch.setattr(cloud, "put_once", refuses)
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 75
    assert cloud.capacity[f"{RUN}-spot"] == 1


def test_a_trainer_that_ends_when_it_was_seen_is_parked_after_all() -> None:
    """systemd merges its OnFailure= into the command that is still at work."""
    cloud = cloud_with_two_groups()
    seen = iter(["", "", "holdfast.service trains", ""])
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None, why_not=lambda: next(seen, "")) == 0
    assert cloud.registers[OUTCOME] == "trains"
    assert cloud.registers[f"/holdfast/{RUN}/parked/{ME}/2/outcome"] == "end"
    assert cloud.capacity[f"{RUN}-spot"] == 0


def test_a_trainer_that_a_person_starts_is_told_at_once() -> None:
    """For `hf-aws status`, and for `hf-aws up`, which ends a machine that waits for a person."""
    cloud = cloud_with_two_groups()
    begin = cloud.clock.now()

    def trains() -> str:
        return "holdfast.service trains" if cloud.clock.now() >= begin + 300 else ""

    park(cloud, cloud.clock, RUN, ME, lambda _: None, why_not=trains)
    assert cloud.clock.now() - begin <= 330


def test_a_throttled_call_does_not_begin_the_half_hour_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud, left = cloud_with_two_groups(), [1]
    real, begin = cloud.put_once, cloud.clock.now()

    def throttled(name: str, value: str) -> bool:
        if value == "end" and left:
            left.pop()
            raise CloudError("ThrottlingException")
        return real(name, value)

    monkeypatch.setattr(cloud, "put_once", throttled)
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert cloud.clock.now() - begin < 1900


def test_a_group_that_could_not_be_ended_is_ended_without_another_half_hour() -> None:
    cloud = cloud_with_two_groups()
    begin = cloud.clock.now()
    assert park(Failing(cloud, 12), cloud.clock, RUN, ME, lambda _: None) == 75  # type: ignore[arg-type]
    assert park(cloud, cloud.clock, RUN, ME, lambda _: None) == 0
    assert cloud.capacity[f"{RUN}-spot"] == 0
    assert cloud.clock.now() - begin < 2200


@pytest.mark.parametrize(
    ("mine", "others", "desired"),
    [((), ("began",), 1), (("ready",), ("began",), 1), (("ready", "began", "over"), ("began",), 1),
     (("began",), ("ready",), 0), ((), ("ready",), 0), ((), ("began", "over"), 0), (("began",), ("began",), 0)],
)  # fmt: skip
def test_a_parked_standby_ends_no_training(
    mine: tuple[str, ...], others: tuple[str, ...], desired: int
) -> None:
    clock = VirtualClock()
    group = FakeGroup(clock, 2, desired=2)
    clock.sleep(1)
    group.settle()
    clock.sleep(60)
    group.settle()
    trains, parked = sorted(group.members)
    for name, marks in ((parked, mine), (trains, others)):
        for what in marks:
            group.put_once(f"/holdfast/{RUN}/crew/{name}/{what}", "1")
    cloud: Any = Beside(group)

    def beside() -> Group | None:
        return where_another_trains(cloud, RUN, parked)

    assert park(cloud, clock, RUN, parked, lambda _: None, beside=beside) == 0
    assert group.desired == desired
    assert (group.members[trains] == "InService") == bool(desired)
    assert group.members[parked] == "Terminating:Wait"


class Beside:
    """A group with registers that can be read."""

    def __init__(self, group: FakeGroup) -> None:
        self.group, self.known = group, dict[str, str]()

    def put_once(self, name: str, value: str) -> bool:
        return self.known.setdefault(name, value) == value

    def parameters(self, path: str) -> dict[str, str]:
        return self.known

    def metric(self, run: str, name: str) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(self.group, name)


def test_the_real_calls_end_both_groups_and_only_them(tmp_path: Path) -> None:
    clock = VirtualClock()
    with StrictAws(clock) as aws:
        scaling = boto3.client("autoscaling", region_name=REGION)
        boto3.client("ec2", region_name=REGION).create_launch_template(
            LaunchTemplateName="kit",
            LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "g5.xlarge"},
        )
        for name, run in (("spot", RUN), ("on-demand", RUN), ("else", "r2")):
            scaling.create_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=0,
                MaxSize=1,
                DesiredCapacity=1,
                AvailabilityZones=["us-east-1a"],
                LaunchTemplate={"LaunchTemplateName": "kit"},
                Tags=[{"Key": "holdfast:run", "Value": run, "PropagateAtLaunch": True}],
            )
        clock.sleep(60)
        directory = run_directory(tmp_path / "run", STATES["complete"])
        assert finish(Aws(REGION), clock, RUN, [directory], 0, lambda _: None) == 0
        clock.sleep(60)
        groups = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        assert {g["AutoScalingGroupName"]: len(g["Instances"]) for g in groups} == {
            "spot": 0,
            "on-demand": 0,
            "else": 1,
        }
        assert not [call for call in aws.log if call.startswith(("Delete", "Terminate"))]


# Two tiers


def tell_home(directory: Path, attempt: int, step: int) -> None:
    told = {"schema": 1, "home": "rclone:x:y", "attempt": attempt, "step": step}
    (directory / "HOME_STATE.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("home", "ends"),
    [(None, False), ((1, 8), False), ((1, 9), True), ((2, 1), True)],
    ids=["nothing told", "an older one", "the newest", "of a newer attempt"],
)
def test_the_last_checkpoint_must_be_home(tmp_path: Path, home: tuple[int, int] | None, ends: bool) -> None:
    cloud, said = cloud_with_two_groups(), []
    directory = run_directory(tmp_path / "run", STATES["complete"])
    (directory / "step-000000000009-a0001.h5").touch()
    if home:
        tell_home(directory, *home)
    assert finish(cloud, cloud.clock, RUN, [directory], 0, said.append, two_tiers=True) == (0 if ends else 78)
    assert cloud.capacity[f"{RUN}-spot"] == (0 if ends else 1)
    assert ends or "is not home" in said[0]


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"step": 9}', '{"attempt": true, "step": 9}'])
def test_a_torn_word_of_home_ends_nothing(tmp_path: Path, torn: str) -> None:
    cloud = cloud_with_two_groups()
    directory = run_directory(tmp_path / "run", STATES["complete"])
    (directory / "step-000000000009-a0001.h5").touch()
    (directory / "HOME_STATE.json").write_text(torn)
    finish(cloud, cloud.clock, RUN, [directory], 0, lambda _: None, two_tiers=True)
    assert cloud.capacity[f"{RUN}-spot"] == 1
