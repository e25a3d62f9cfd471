"""`hf-aws` on the strict double, where alarms, scaling policies and hooks act: the template's own fallback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import plans
import pytest
from strict import REGION, StrictAws
from virtual import VirtualClock

from holdfast_aws import launch, look, steer, tidy
from holdfast_aws.account import Account, CommandError
from holdfast_aws.plan import LaunchPlan

NONE: dict[str, int] = {}


@pytest.fixture
def aws() -> Iterator[StrictAws]:
    with StrictAws(VirtualClock()) as made:
        yield made


def account(aws: StrictAws) -> Account:
    def client(name: str) -> Any:
        return boto3.client(name, region_name=REGION)  # type: ignore[call-overload]

    return Account(client, say=lambda text: None, sleep=lambda s: pause(aws, s), now=aws.clock.now)


def pause(aws: StrictAws, seconds: float) -> None:
    """Virtual time passes, and AWS does what is due."""
    until = aws.clock.now() + seconds
    while aws.clock.now() < until:
        aws.clock.sleep(min(10.0, until - aws.clock.now()))
        aws.settle()


def start(aws: StrictAws, **changes: Any) -> LaunchPlan:
    plan = plans.plan(machine_image="ami-12345678", vpc="", subnets=(), fallback_minutes=20, **changes)
    launch.up(account(aws), plan)
    return plan


def kinds(aws: StrictAws) -> list[str]:
    groups = account(aws).groups("r1")
    return [look._group(group)["kind"] for group in groups for _ in group["Instances"]]


def test_on_demand_comes_after_the_minutes_and_goes_when_spot_is_back(aws: StrictAws) -> None:
    aws.groups.capacity = NONE
    start(aws)
    pause(aws, 19 * 60)
    assert kinds(aws) == []
    pause(aws, 4 * 60)
    assert kinds(aws) == ["on-demand"]
    aws.groups.capacity = None
    pause(aws, 5 * 60)
    assert sorted(kinds(aws)) == ["on-demand", "spot"]
    pause(aws, 13 * 60)
    assert kinds(aws) == ["spot"]


def test_spot_that_comes_in_time_buys_nothing(aws: StrictAws) -> None:
    aws.groups.capacity = NONE
    start(aws)
    pause(aws, 15 * 60)
    aws.groups.capacity = None
    pause(aws, 60 * 60)
    assert kinds(aws) == ["spot"]


def test_stop_in_the_middle_of_a_fallback_stays_stopped(aws: StrictAws) -> None:
    aws.groups.capacity = NONE
    start(aws)
    pause(aws, 25 * 60)
    assert kinds(aws) == ["on-demand"]
    steer.stop(account(aws), "r1")
    pause(aws, 60 * 60)
    assert kinds(aws) == []
    assert {group["DesiredCapacity"] for group in account(aws).groups("r1")} == {0}


def test_without_silenced_alarms_a_stop_does_not_stay(
    aws: StrictAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above can fail: the on-demand group first, its alarm not silenced."""
    aws.groups.capacity = NONE
    start(aws)
    pause(aws, 25 * 60)
    scaling = boto3.client("autoscaling", region_name=REGION)
    scaling.set_desired_capacity(AutoScalingGroupName="holdfast-r1-on-demand", DesiredCapacity=0)
    pause(aws, 2 * 60)
    assert account(aws).groups("r1")[1]["DesiredCapacity"] == 1


def test_up_goes_on_after_a_stop(aws: StrictAws) -> None:
    plan = start(aws)
    pause(aws, 5 * 60)
    steer.stop(account(aws), "r1")
    assert kinds(aws) == []
    launch.up(account(aws), plan)
    pause(aws, 5 * 60)
    assert kinds(aws) == ["spot"]


def test_stop_waits_for_the_hook(aws: StrictAws) -> None:
    """Nobody completes the hook here, so the machine stays for the hook's 300 s, and no longer."""
    start(aws)
    pause(aws, 5 * 60)
    began = aws.clock.now()
    steer.stop(account(aws), "r1")
    assert 300 <= aws.clock.now() - began <= 420


def test_move_replaces_the_machine_in_the_other_zone(aws: StrictAws) -> None:
    start(aws)
    pause(aws, 5 * 60)
    (group,) = (g for g in account(aws).groups("r1") if g["Instances"])
    here = group["Instances"][0]["AvailabilityZone"]
    there = next(zone for zone in sorted(group["AvailabilityZones"]) if zone != here)
    steer.move(account(aws), "r1", there)
    pause(aws, 15 * 60)
    (group,) = (g for g in account(aws).groups("r1") if g["Instances"])
    assert [i["AvailabilityZone"] for i in group["Instances"]] == [there]


def test_mode_on_demand_now_replaces_the_spot_machine(aws: StrictAws) -> None:
    start(aws)
    pause(aws, 5 * 60)
    before = [machine["InstanceId"] for machine in account(aws).machines("r1")]
    steer.mode(account(aws), "r1", "on-demand", now=True)
    pause(aws, 15 * 60)
    after = [machine["InstanceId"] for machine in account(aws).machines("r1")]
    assert len(after) == 1
    assert after != before


def test_down_waits_for_the_machine(aws: StrictAws) -> None:
    start(aws)
    pause(aws, 5 * 60)
    tidy.down(account(aws), "r1")
    assert account(aws).groups("r1") == []
    assert account(aws).machines("r1") == []


def test_throttled_calls_are_75(aws: StrictAws) -> None:
    aws.throttle = lambda operation: "RequestLimitExceeded" if operation == "DescribeSubnets" else None
    with pytest.raises(CommandError, match="busy") as refusal:
        start(aws)
    assert refusal.value.code == 75
