"""A second machine that boots before the first ends: each case, killed before and after each call to AWS."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import plans
import pytest
from crew import RUN, FakeGroup, Play, TwoGroups
from policy_eval import Call, Resource, allows
from rights import Rights
from strict import REGION, StrictAws
from strict_groups import _computed
from virtual import VirtualClock

from holdfast_aws import launch
from holdfast_aws.account import Account
from holdfast_aws.aws import Aws
from holdfast_aws.cloud import HOOK, Group
from holdfast_aws.plan import LaunchPlan, UsageError, spot_group
from holdfast_aws.standby import (
    BASE,
    BEGAN,
    GIVE_BACK,
    LEAVE,
    MARK,
    NOTHING,
    OVER,
    RAISE,
    READY,
    REPLACE,
    STOP,
    World,
    end_of,
    next_step,
)
from holdfast_aws.template import template

Case = Callable[[Play], None]


def begin(play: Play) -> None:
    for _ in range(3):
        play.run(2000, lambda: any(one.trains for one in play.living()))
        play.run(120)
        if any(one.trains for one in play.living()):
            return
    raise AssertionError(f"nobody trains: {play.said}")


def notice(play: Play) -> None:
    begin(play)
    play.holder.notice(120)
    play.run(600)


def early_notice(play: Play) -> None:
    """The standby is ready before the end."""
    begin(play)
    play.holder.notice(400)
    play.run(600)


def recommendation(play: Play) -> None:
    begin(play)
    play.holder.at_risk = True
    play.run(600)


def two_notices_at_once(play: Play) -> None:
    begin(play)
    play.holder.notice(400)
    play.run(200, lambda: any(one.waits for one in play.standbys))
    for standby in play.standbys:
        standby.notice(120)
    play.run(900)


def withdrawn(play: Play) -> None:
    begin(play)
    holder = play.holder
    holder.notice(500)
    play.run(50)
    holder.deadline = None
    play.run(600)


def capacity_never_comes(play: Play) -> None:
    begin(play)
    play.group.room = 1
    play.holder.notice(120)
    play.run(600)


def standby_dies(play: Play) -> None:
    begin(play)
    play.holder.notice(800)
    play.run(200, lambda: bool(play.standbys))
    for standby in play.standbys:
        standby.lose()
    play.run(1200)


def lost_without_a_word(play: Play) -> None:
    begin(play)
    play.holder.lose()
    play.run(600)


CASES: dict[str, Case] = {
    each.__name__: each
    for each in (
        notice,
        early_notice,
        recommendation,
        two_notices_at_once,
        withdrawn,
        capacity_never_comes,
        standby_dies,
        lost_without_a_word,
    )
}
PLAYS = [
    *((name, "on-notice") for name in CASES if name != "recommendation"),
    *((name, "on-rebalance") for name in ("recommendation", "two_notices_at_once")),
    *(
        (name, "always")
        for name in ("early_notice", "standby_dies", "lost_without_a_word", "capacity_never_comes")
    ),
]


@pytest.mark.parametrize(("name", "strategy"), PLAYS)
def test_killed_before_and_after_each_call(name: str, strategy: str, tmp_path: Path) -> None:
    play = Play(FakeGroup, strategy, tmp_path / "0")
    CASES[name](play)
    points = play.points
    play.check_settled()
    # A standby that is always there asks for its turn all the time: each seventh call of those.
    for point, dies in itertools.product(
        range(1, points + 1, 7 if strategy == "always" else 1), (False, True)
    ):
        killed = Play(FakeGroup, strategy, tmp_path / f"{point}-{dies}")
        killed.kill_at, killed.machine_dies = point, dies
        CASES[name](killed)
        killed.check_settled()


# On the strict double: the template's own group, real calls, the machine's own rights.


def s3_plan(strategy: str, **changes: Any) -> LaunchPlan:
    return plans.plan(home="s3://bucket/runs", region=REGION, standby=strategy, **changes)


class StrictGroup:
    def __init__(self, aws: StrictAws, strategy: str, most: int) -> None:
        self.aws = aws
        plan = s3_plan(strategy, machine_image="ami-12345678", vpc="", subnets=())
        boto3.client("s3", region_name=REGION).create_bucket(Bucket="bucket")
        launch.up(
            Account(
                lambda name: boto3.client(name, region_name=REGION),  # type: ignore[call-overload]
                say=lambda text: None,
                sleep=aws.clock.sleep,
                now=aws.clock.now,
            ),
            plan,
        )
        self.name = spot_group(plan.run)
        if most == BASE:
            boto3.client("autoscaling", region_name=REGION).update_auto_scaling_group(
                AutoScalingGroupName=self.name, MaxSize=most
            )
        self.rights = Rights(aws, plan.run, plan.policy)
        self._machine = Aws(REGION)

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._machine, method)

        def call(*arguments: Any, **named: Any) -> Any:
            self.aws.authorize = self.rights.allow
            try:
                return real(*arguments, **named)
            finally:
                self.aws.authorize = None

        return call

    @property
    def room(self) -> int | None:
        return None

    @room.setter
    def room(self, machines: int | None) -> None:
        zones = [f"{REGION}{letter}" for letter in "abcdef"]
        self.aws.groups.capacity = None if machines is None else dict.fromkeys(zones, 0)

    def settle(self) -> None:
        self.aws.settle()

    def living(self) -> list[str]:
        return [name for group in self._machine.groups("r1") for name in group.members]

    def leaving(self, instance: str) -> bool:
        return instance in self.aws.groups.waiting

    def reclaim(self, instance: str) -> None:
        boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=[instance])

    def complete(self, instance: str) -> None:
        self._machine.complete_hook(self.name, HOOK, instance)


@pytest.fixture
def aws() -> Iterator[StrictAws]:
    with StrictAws(VirtualClock()) as made:
        yield made


def strict_play(aws: StrictAws, strategy: str, folder: Path, most: int = BASE + 1) -> Play:
    play = Play(lambda clock, at_most: StrictGroup(aws, strategy, at_most), strategy, folder, most)
    play.clock, play.tick = aws.clock, 15.0  # moto takes its time
    return play


@pytest.mark.parametrize(
    "name", ["early_notice", "two_notices_at_once", "withdrawn", "capacity_never_comes", "standby_dies"]
)
def test_on_the_strict_double(name: str, tmp_path: Path, aws: StrictAws) -> None:
    play = strict_play(aws, "on-notice", tmp_path)
    CASES[name](play)
    play.check_settled()
    assert aws.log.count("TerminateInstanceInAutoScalingGroup") <= 2


@pytest.mark.parametrize("strict", [False, True], ids=["in memory", "strict"])
def test_a_group_at_its_maximum_gets_no_second_machine(strict: bool, tmp_path: Path, aws: StrictAws) -> None:
    most = BASE
    play = (
        strict_play(aws, "on-notice", tmp_path, most)
        if strict
        else Play(FakeGroup, "on-notice", tmp_path, most)
    )
    begin(play)
    old = play.holder
    old.notice(120)
    play.run(60)
    assert len(play.living()) == 1
    assert "set_desired" not in play.log
    play.run(60)
    assert old.stopped, "it did not hand over"
    play.check_settled()


def test_the_new_machine_is_there_before_the_old_one_goes(tmp_path: Path) -> None:
    play = Play(FakeGroup, "on-notice", tmp_path)
    begin(play)
    old = play.holder
    old.notice(400)
    play.run(300, lambda: not old.trains)
    (new,) = [one for one in play.living() if one is not old]
    play.run(15)
    assert play.holder is new
    assert old.deadline is not None
    assert play.clock.now() < old.deadline - 200, "it trained on until the other was ready, and no longer"
    play.check_settled()


def test_a_notice_that_is_withdrawn_costs_the_second_machine_only(tmp_path: Path) -> None:
    play = Play(FakeGroup, "on-notice", tmp_path)
    begin(play)
    old = play.holder
    withdrawn(play)
    assert play.holder is old
    play.check_settled()


@pytest.mark.parametrize("strategy", ["on-notice", "on-rebalance", "always"])
def test_a_run_that_is_stopped_stays_stopped(strategy: str, tmp_path: Path) -> None:
    play = Play(FakeGroup, strategy, tmp_path)
    begin(play)
    play.holder.at_risk = True
    play.holder.notice(3600)
    play.group.set_desired("spot", 0)  # hf-aws stop, or --max-hours
    play.run(1200)
    assert (play.group.desired, play.living()) == (0, [])


def fallback(folder: Path) -> tuple[Play, TwoGroups]:
    """Spot has had no machine: one on demand trains. Then spot has one, which waits."""
    play = Play(TwoGroups, "on-notice", folder)
    group: TwoGroups = play.group
    group.spot.room = 0
    group.on_demand.set_desired("on-demand", 1)
    begin(play)
    group.spot.room = None
    play.run(300, lambda: any(one.waits for one in play.standbys))
    assert group.on_demand.group_of(play.holder.name)
    return play, group


def test_spot_waits_for_the_machine_on_demand(tmp_path: Path) -> None:
    play, group = fallback(tmp_path)
    play.run(600)
    assert group.on_demand.group_of(play.holder.name)
    group.on_demand.set_desired("on-demand", 0)
    play.check_settled()


@pytest.mark.parametrize("after", [5, 60, 600])
def test_somebody_trains_when_spot_was_superseded_and_on_demand_goes(after: float, tmp_path: Path) -> None:
    """Both had looked at once, and both began: the claim in S3 chose the one on demand."""
    play, group = fallback(tmp_path)
    (spot,) = play.standbys
    group.spot.put_once(f"/holdfast/{RUN}/crew/{spot.name}/began", "1")
    spot.superseded()
    play.run(after)
    group.on_demand.set_desired("on-demand", 0)
    play.run(600, lambda: any(one.trains for one in play.living()))
    play.check_settled()


def test_a_lone_machine_that_was_superseded_is_replaced(tmp_path: Path) -> None:
    play = Play(FakeGroup, "on-notice", tmp_path)
    begin(play)
    play.holder.superseded()
    play.run(600)
    play.check_settled()


# One step.


def world(**more: Any) -> World:
    members = more.pop("members", {"i-me": "InService"})
    marks = (
        {name: frozenset[str]() for name in members}
        | {"i-me": frozenset({READY, BEGAN})}
        | more.pop("marks", {})
    )
    group = Group("spot", more.pop("desired", 1), more.pop("most", 2), members)
    return World(more.pop("strategy", "on-notice"), "i-me", group, marks, more.pop("trains", True), **more)


TWO = {"i-me": "InService", "i-new": "InService"}
SOON: dict[str, Any] = {"deadline": 1120.0, "now": 1000.0}


def says(*marks: str, of: str = "i-new") -> dict[str, frozenset[str]]:
    return {of: frozenset(marks)}


STEPS: dict[str, tuple[World, str]] = {
    "nothing is announced": (world(), NOTHING),
    "a notice": (world(**SOON), RAISE),
    "a notice at the maximum": (world(most=1, **SOON), NOTHING),
    "a notice, and another is asked for": (world(desired=2, **SOON), NOTHING),
    "it boots": (world(desired=2, members=TWO, **SOON), NOTHING),
    "it stands by": (world(desired=2, members=TWO, marks=says(READY), **SOON), STOP),
    "it stood by, and goes": (
        world(desired=2, members={**TWO, "i-new": "Terminating:Wait"}, marks=says(READY), **SOON),
        NOTHING,
    ),
    "the end comes first": (world(desired=2, deadline=1120.0, now=1100.0), STOP),
    "stopped, and it still trains": (world(handing_over=True, desired=2), STOP),
    "the trainer has ended": (world(handing_over=True, trains=False, desired=2), MARK),
    "its turn is over": (
        world(handing_over=True, trains=False, desired=2, marks=says(READY, BEGAN, OVER, of="i-me")),
        LEAVE,
    ),
    "its turn is over, and nobody was asked for": (
        world(handing_over=True, trains=False, marks=says(READY, BEGAN, OVER, of="i-me")),
        REPLACE,
    ),
    "its turn is over, and a standby is always there": (
        world(
            strategy="always",
            handing_over=True,
            trains=False,
            desired=2,
            marks=says(READY, BEGAN, OVER, of="i-me"),
        ),
        REPLACE,
    ),
    "its turn is over, and its group ends it": (
        world(trains=False, members={"i-me": "Terminating:Wait"}, marks=says(READY, BEGAN, OVER, of="i-me")),
        NOTHING,
    ),
    "its turn is over, and the user has stopped the run": (
        world(trains=False, desired=0, marks=says(READY, BEGAN, OVER, of="i-me")),
        NOTHING,
    ),
    "a newer attempt of another group has taken the run": (
        world(trains=False, marks=says(READY, BEGAN, OVER, of="i-me")),
        REPLACE,
    ),
    "a newer attempt has taken the run": (
        world(trains=False, desired=2, members=TWO, marks=says(READY, BEGAN, OVER, of="i-me")),
        LEAVE,
    ),
    "a standby hears a notice": (world(trains=False, desired=2, members=TWO, **SOON), NOTHING),
    "the notice was withdrawn": (world(desired=2, members=TWO, marks=says(READY)), GIVE_BACK),
    "the one before has not left yet": (
        world(desired=2, members=TWO, marks=says(READY, BEGAN, OVER)),
        NOTHING,
    ),
    "a recommendation that does not count": (world(at_risk=True), NOTHING),
    "a recommendation": (world(strategy="on-rebalance", at_risk=True), RAISE),
    "always": (world(strategy="always"), RAISE),
    **{
        f"{strategy}: the user has stopped the run, {state}": (
            world(strategy=strategy, desired=0, members={"i-me": state}, at_risk=True, **SOON),
            NOTHING,
        )
        for strategy in ("on-notice", "on-rebalance", "always")
        for state in ("InService", "Terminating:Wait")
    },
    **{
        f"{strategy}: its group replaces it": (
            world(strategy=strategy, members={"i-me": "Terminating:Wait"}, at_risk=True, **SOON),
            NOTHING,
        )
        for strategy in ("on-notice", "on-rebalance", "always")
    },
    "always, and it is there": (world(strategy="always", desired=2, members=TWO, marks=says(READY)), NOTHING),
}


@pytest.mark.parametrize("name", STEPS)
def test_step(name: str) -> None:
    given, step = STEPS[name]
    assert next_step(given) == step


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ('{"action": "terminate", "time": "1970-01-01T00:02:00Z"}', 120.0),
        ('{"action": "stop", "time": "1970-01-01T00:02:00Z"}', 120.0),
        ('{"action": "hibernate", "time": "1970-01-01T00:02:00Z"}', None),
        ("{", None),
        ("[]", None),
        ('{"action": "terminate", "time": "soon"}', None),
    ],
)
def test_words_of_ec2(told: str, end: float | None) -> None:
    assert end_of(told) == end


# What is launched.


def test_only_where_no_volume_must_move() -> None:
    assert s3_plan("").stands_by == "on-notice"
    assert s3_plan("never").stands_by == "never"
    assert plans.PLAIN.stands_by == "never"
    assert s3_plan("", rebalance=True).stands_by == "never"
    with pytest.raises(UsageError, match="needs --home s3"):
        plans.plan(standby="on-notice")
    with pytest.raises(UsageError, match="choose one"):
        s3_plan("always", rebalance=True)
    with pytest.raises(UsageError, match="never, on-notice"):
        s3_plan("soon")


def test_two_kinds_of_machines_need_an_order() -> None:
    assert s3_plan("", fallback_minutes=20).stands_by == "on-notice"
    assert s3_plan("never").stands_by == s3_plan("", rebalance=True).stands_by == "never"
    assert plans.plan(fallback_minutes=20, rebalance=True).stands_by == "never"  # the volume orders them
    for changes in ({"strategy": "never"}, {"strategy": "", "rebalance": True}):
        with pytest.raises(UsageError, match="--fallback-minutes needs a --standby"):
            s3_plan(**changes, fallback_minutes=20)  # type: ignore[arg-type]


def test_the_group_has_room_for_one_more_and_no_more() -> None:
    made = template(s3_plan("on-notice", fallback_minutes=20))["Resources"]
    spot, on_demand = made["Spot"]["Properties"], made["OnDemand"]["Properties"]
    assert (spot["MaxSize"], spot["TerminationPolicies"]) == ("2", ["NewestInstance"])
    assert on_demand["MaxSize"] == "1"
    assert template(s3_plan("never"))["Resources"]["Spot"]["Properties"]["MaxSize"] == "1"
    # A standby that spot does not give buys no machine.
    assert (
        made["NoSpot"]["Properties"]["Metrics"][0]["Expression"] == "IF(desired > 1, 1, desired) - in_service"
    )


@pytest.mark.parametrize(
    ("desired", "in_service", "gap"), [(2, 2, -1), (2, 1, 0), (2, 0, 1), (1, 1, 0), (1, 0, 1), (0, 0, 0)]
)
def test_the_alarm_misses_one_machine_and_no_standby(desired: float, in_service: float, gap: float) -> None:
    alarm = template(s3_plan("on-notice", fallback_minutes=20))["Resources"]["NoSpot"]["Properties"]
    expression = alarm["Metrics"][0]["Expression"]
    assert _computed(expression, {"desired": desired, "in_service": in_service}) == gap


def test_rights() -> None:
    def group(run: str) -> Resource:
        arn = "arn:aws:autoscaling:us-east-1:111122223333:autoScalingGroup:uuid:autoScalingGroupName/g"
        return Resource(arn, {"holdfast:run": run})

    policy, without = s3_plan("on-notice").policy, s3_plan("never").policy
    leave = "autoscaling:TerminateInstanceInAutoScalingGroup"
    assert allows(policy, Call(leave, [group("r1")]))
    assert not allows(policy, Call(leave, [group("r10")]))
    assert not allows(without, Call(leave, [group("r1")]))
    assert not allows(policy, Call("autoscaling:UpdateAutoScalingGroup", [group("r1")])), (
        "MaxSize is the limit"
    )
    registers = "arn:aws:ssm:us-east-1:111122223333:parameter/holdfast"
    assert allows(policy, Call("ssm:GetParameters", [Resource(f"{registers}/r1/crew/i-1/over")]))
    assert not allows(policy, Call("ssm:GetParameters", [Resource(f"{registers}/r10/crew/i-1/over")]))
