"""`hf-aws` against moto: up, stop, mode, move, down, check, status, and that --dry-run changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import account_lab
import plans
import pytest
from account_lab import Lab

from holdfast_aws import checks, launch, look, rehearse, steer, tidy
from holdfast_aws.account import Account, CommandError
from holdfast_aws.cli import main
from holdfast_aws.prices import PRICES, Price
from holdfast_aws.registers import parse


@pytest.fixture
def lab() -> Iterator[Lab]:
    with account_lab.lab() as made:
        yield made


def group(lab: Lab, name: str = "holdfast-r1-spot") -> Any:
    return next(g for g in lab.another().groups("r1") if g["AutoScalingGroupName"] == name)


def test_up_starts_one_spot_machine(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    assert group(lab)["DesiredCapacity"] == 1
    assert len(lab.another().machines("r1")) == 1
    assert [p["ProcessName"] for p in group(lab)["SuspendedProcesses"]] == ["AZRebalance"]


def test_up_suspends_zone_balancing_before_the_first_machine(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    assert lab.calls.index("SuspendProcesses") < lab.calls.index("SetDesiredCapacity")


def test_up_again_does_not_start_a_second_machine(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    launch.up(lab.another(), lab.plan(size_gib=200))
    assert lab.calls.count("SetDesiredCapacity") == 1
    assert "UpdateStack" in lab.calls


def test_up_while_on_demand_trains_asks_for_spot_again(lab: Lab) -> None:
    """Its machine was parked. The alarms look at that group, and let on-demand go once it has a machine."""
    plan = lab.plan(fallback_minutes=20)
    launch.up(lab.account, plan)
    scaling = lab.client("autoscaling")
    scaling.set_desired_capacity(AutoScalingGroupName="holdfast-r1-spot", DesiredCapacity=0)
    scaling.set_desired_capacity(AutoScalingGroupName="holdfast-r1-on-demand", DesiredCapacity=1)
    launch.up(lab.another(), plan)
    assert group(lab)["DesiredCapacity"] == 1
    assert group(lab, "holdfast-r1-on-demand")["DesiredCapacity"] == 1


def limits(lab: Lab) -> list[Any]:
    found = lab.client("autoscaling").describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    return [
        (one["DesiredCapacity"], one["MaxSize"], one["StartTime"].timestamp() - lab.clock[0]) for one in found
    ]


def test_up_with_a_limit_ends_all_groups(lab: Lab) -> None:
    plan = lab.plan(fallback_minutes=20)
    launch.up(lab.account, plan, max_hours=5)
    assert lab.calls.count("PutScheduledUpdateGroupAction") == 2  # moto keeps one a name, whatever the group
    assert {limit[:2] for limit in limits(lab)} == {(0, 0)}, "no alarm and no machine may ask for more"
    # What AWS does then.
    for name in plan.groups:
        lab.client("autoscaling").update_auto_scaling_group(
            AutoScalingGroupName=name, MaxSize=0, DesiredCapacity=0
        )
    launch.up(lab.another(), plan)
    assert (group(lab)["MaxSize"], group(lab)["DesiredCapacity"]) == (1, 1)
    assert group(lab, "holdfast-r1-on-demand")["MaxSize"] == 1


def test_up_keeps_a_limit_unless_it_is_told(lab: Lab) -> None:
    """Whatever parks a machine says: hf-aws up goes on."""
    launch.up(lab.account, lab.plan(), max_hours=5)
    launch.up(lab.another(), lab.plan())
    assert [round(limit[2]) for limit in limits(lab)] == [5 * 3600]
    launch.up(lab.another(), lab.plan(), max_hours=9)
    assert [round(limit[2]) for limit in limits(lab)] == [9 * 3600]
    launch.up(lab.another(), lab.plan(), max_hours=0)
    assert limits(lab) == []


def test_a_limit_is_never_taken_away_for_a_new_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan(), max_hours=5)
    account = lab.another()
    real = account.change

    def throttled(what: str, service: str, operation: str, **words: Any) -> Any:
        if operation == "put_scheduled_update_group_action":
            raise CommandError(75, "Throttling")
        return real(what, service, operation, **words)

    monkeypatch.setattr(account, "change", throttled)
    with pytest.raises(CommandError):
        launch.up(account, lab.plan(), max_hours=9)
    assert len(limits(lab)) == 1


def test_up_where_nothing_offers_the_machines_creates_nothing(lab: Lab) -> None:
    with pytest.raises(CommandError, match="no default subnet"):
        launch.up(lab.account, lab.plan(types=("x99.large",)))
    assert lab.calls == []


# A parked machine


def parked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Account, list[str]]:
    """A run with one, the account, and the machines that are replaced: moto cannot."""
    launch.up(lab.account, lab.plan())
    name = lab.another().machines("r1")[0]["InstanceId"]
    register(lab, f"parked/{name}/since", "2026-11-27T00:00:00+00:00")
    lab.calls.clear()
    again, replaced = lab.another(), []
    real = again.change

    def change(what: str, service: str, call: str, **arguments: Any) -> Any:
        if call != "terminate_instance_in_auto_scaling_group":
            return real(what, service, call, **arguments)
        assert arguments["ShouldDecrementDesiredCapacity"] is False
        return replaced.append(arguments["InstanceId"])

    monkeypatch.setattr(again, "change", change)
    return name, again, replaced


def test_up_replaces_a_parked_machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name, again, replaced = parked(lab, monkeypatch)
    launch.up(again, lab.plan())
    assert replaced == [name]
    assert lab.another().parameters("/holdfast/r1")[f"/holdfast/r1/parked/{name}/outcome"] == "up"
    assert group(lab)["DesiredCapacity"] == 1


def test_up_and_the_parked_machine_decide_by_one_register(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was first: its end comes, and then `up` asks for another."""
    name, again, replaced = parked(lab, monkeypatch)
    register(lab, f"parked/{name}/outcome", "end")

    def sleep(_: float) -> None:
        lab.client("autoscaling").set_desired_capacity(
            AutoScalingGroupName="holdfast-r1-spot", DesiredCapacity=0
        )

    again.sleep = sleep
    launch.up(again, lab.plan())
    assert replaced == []
    assert group(lab)["DesiredCapacity"] == 1


def test_up_and_status_leave_a_machine_alone_that_trains_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, again, replaced = parked(lab, monkeypatch)
    register(lab, f"parked/{name}/outcome", "trains")
    assert look.status(lab.another(), "r1").data["parked"] == []
    launch.up(again, lab.plan())
    assert replaced == []
    register(lab, f"parked/{name}/2/since", "2026-11-28T00:00:00+00:00")
    assert look.status(lab.another(), "r1").data["parked"] == [name]
    launch.up(again, lab.plan())
    assert replaced == [name]
    assert lab.another().parameters("/holdfast/r1")[f"/holdfast/r1/parked/{name}/2/outcome"] == "up"


def test_up_says_when_the_parked_machine_does_not_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name, again, _ = parked(lab, monkeypatch)
    register(lab, f"parked/{name}/outcome", "end")
    with pytest.raises(CommandError, match="has not ended the run yet") as refusal:
        launch.up(again, lab.plan())
    assert refusal.value.code == 75


def test_status_shows_a_parked_machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name, again, _ = parked(lab, monkeypatch)
    answer = look.status(lab.another(), "r1")
    assert answer.code == 78
    assert any(line.startswith(f"  parked    {name} waits for a person") for line in answer.lines)
    launch.up(again, lab.plan())
    assert look.status(lab.another(), "r1").data["parked"] == []


def test_up_forgets_the_machines_that_were_given_up(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    assert not [name for name in lab.another().parameters("/holdfast/r1") if "given-up" in name]
    register(lab, "given-up/1", "i-1")
    register(lab, "given-up/2", "i-2")
    launch.up(lab.another(), lab.plan())
    found = parse("r1", lab.another().parameters("/holdfast/r1"))
    assert found.given_up == {1: "i-1", 2: "i-2", 3: "up"}
    assert found.given_up_in_a_row == ()


def test_stop_keeps_alarms_away_first(lab: Lab) -> None:
    launch.up(lab.account, lab.plan(fallback_minutes=20))
    lab.calls.clear()
    steer.stop(lab.another(), "r1")
    assert lab.calls == ["SuspendProcesses"] * 2 + ["SetDesiredCapacity"] * 2
    assert {g["DesiredCapacity"] for g in lab.another().groups("r1")} == {0}


def test_stop_ends_what_a_machine_asked_for_at_that_moment(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.client("s3").create_bucket(Bucket="bucket")
    launch.up(lab.account, lab.plan(home="s3://bucket", region="us-east-1"))
    again = lab.another()
    change, slow = again.change, iter(["a machine has read the group, and sets it now"])

    def at_that_moment(what: str, service: str, call: str, **arguments: Any) -> Any:
        done = change(what, service, call, **arguments)
        if call == "set_desired_capacity" and next(slow, ""):
            change("a standby", service, call, **{**arguments, "DesiredCapacity": 2})
        return done

    monkeypatch.setattr(again, "change", at_that_moment)
    steer.stop(again, "r1")
    assert group(lab)["DesiredCapacity"] == 0
    assert again.machines("r1") == []


def test_stop_says_when_a_machine_does_not_go(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan())
    again = lab.another()
    monkeypatch.setattr(again, "machines", lambda run: [{"InstanceId": "i-1"}])
    with pytest.raises(CommandError, match="i-1 still runs") as refusal:
        steer.stop(again, "r1")
    assert refusal.value.code == 75


def test_up_after_stop_hears_alarms_again(lab: Lab) -> None:
    plan = lab.plan(fallback_minutes=20)
    launch.up(lab.account, plan)
    steer.stop(lab.another(), "r1")
    launch.up(lab.another(), plan)
    assert group(lab)["DesiredCapacity"] == 1
    for one in lab.another().groups("r1"):
        assert [p["ProcessName"] for p in one["SuspendedProcesses"]] == ["AZRebalance"]


def test_mode_there_and_back(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    steer.mode(lab.another(), "r1", "on-demand")
    mix = group(lab)["MixedInstancesPolicy"]["InstancesDistribution"]
    assert (mix["OnDemandBaseCapacity"], mix["OnDemandPercentageAboveBaseCapacity"]) == (1, 0)
    assert look.status(lab.another(), "r1").data["groups"][0]["kind"] == "on-demand"
    steer.mode(lab.another(), "r1", "spot")
    assert group(lab)["MixedInstancesPolicy"]["InstancesDistribution"]["OnDemandBaseCapacity"] == 0


def test_move_opens_one_zone_and_replaces_the_machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan())
    here = group(lab)["Instances"][0]["AvailabilityZone"]
    there = next(z for z in sorted(group(lab)["AvailabilityZones"]) if z != here)
    again = lab.another()
    asked = again.change
    ended: list[str] = []

    def change(what: str, service: str, call: str, **arguments: Any) -> Any:
        if call == "terminate_instance_in_auto_scaling_group":  # moto does not know it
            assert arguments["ShouldDecrementDesiredCapacity"] is False
            ended.append(arguments["InstanceId"])
            return None
        return asked(what, service, call, **arguments)

    monkeypatch.setattr(again, "change", change)
    steer.move(again, "r1", there)
    assert ended == [group(lab)["Instances"][0]["InstanceId"]]
    assert group(lab)["AvailabilityZones"] == [there]
    steer.move(lab.another(), "r1", "any")
    assert here in group(lab)["AvailabilityZones"]


def test_move_to_a_zone_without_subnet_is_refused(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    lab.calls.clear()
    with pytest.raises(CommandError, match="no subnet in eu-north-1z"):
        steer.move(lab.another(), "r1", "eu-north-1z")
    assert lab.calls == []


def make_volume(lab: Lab, generation: int) -> str:
    made = lab.client("ec2").create_volume(
        AvailabilityZone="us-east-1a",
        Size=8,
        VolumeType="gp3",
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [
                    {"Key": "holdfast:run", "Value": "r1"},
                    {"Key": "holdfast:gen", "Value": str(generation)},
                ],
            }
        ],
    )
    return str(made["VolumeId"])


def register(lab: Lab, name: str, value: str) -> None:
    lab.client("ssm").put_parameter(Name=f"/holdfast/r1/{name}", Value=value, Type="String")


def test_down_keeps_the_data(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    volume = make_volume(lab, 1)
    register(lab, "gen/1/claim", "i-1")
    answer = tidy.down(lab.another(), "r1")
    assert launch.stack_state(lab.another(), "holdfast-r1") in (None, "DELETE_COMPLETE")
    assert [v["VolumeId"] for v in lab.another().volumes("r1")] == [volume]
    assert volume in answer.lines[0]
    assert not {"DeleteVolume", "DeleteSnapshot", "DeleteParameter"} & set(lab.calls)


def test_the_stack_of_another_run_is_left_alone(lab: Lab) -> None:
    launch.up(lab.account, lab.plan(run="a_b"))
    lab.calls.clear()
    for command in (
        lambda: tidy.down(lab.another(), "a-b"),
        lambda: launch.up(lab.another(), lab.plan(run="a-b")),
    ):
        with pytest.raises(CommandError, match="is that of the run a_b"):
            command()
    assert lab.calls == []


def test_down_deletes_data_only_for_the_name_twice(lab: Lab) -> None:
    launch.up(lab.account, lab.plan())
    volume = make_volume(lab, 1)
    register(lab, "gen/1/claim", "i-1")
    register(lab, "gen/1/outcome", f"commit:{volume}:us-east-1a")
    with pytest.raises(CommandError, match="repeat the run's name") as refusal:
        tidy.down(lab.another(), "r1", "r2")
    assert refusal.value.code == 64
    tidy.down(lab.another(), "r1", "r1")
    assert lab.another().volumes("r1") == []
    assert lab.another().parameters("/holdfast/r1") == {}
    assert lab.calls.index("DeleteVolume") < lab.calls.index("DeleteParameter")


def test_dry_run_changes_nothing(lab: Lab) -> None:
    plan = lab.plan(fallback_minutes=20)
    launch.up(lab.another(dry_run=True), plan)
    assert lab.calls == []
    launch.up(lab.account, plan)
    make_volume(lab, 1)
    lab.calls.clear()
    zone = group(lab)["AvailabilityZones"][0]
    steer.stop(lab.another(dry_run=True), "r1")
    steer.mode(lab.another(dry_run=True), "r1", "on-demand", now=True)
    steer.move(lab.another(dry_run=True), "r1", zone)
    tidy.gc(lab.another(dry_run=True), "r1", delete=True)
    tidy.down(lab.another(dry_run=True), "r1", "r1")
    rehearse.rehearse(lab.another(dry_run=True), "r1")
    assert lab.calls == []
    assert any(text.startswith("would set holdfast-r1-spot to 0") for text in lab.said)


def test_status_reads_the_console(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan())
    volume = make_volume(lab, 1)
    register(lab, "gen/1/claim", "i-0")
    register(lab, "gen/1/outcome", f"commit:{volume}:us-east-1a")
    register(lab, "gen/2/claim", "i-0abc")
    told = {
        "t": int(lab.clock[0]) - 20,
        "runs": [
            {
                "dir": "run", "attempt": 3, "phase": "running", "step": 1200, "durable_step": 1180,
                "durable_age_s": 40, "notice": "deadline by ec2, 119 s ahead",
            }
        ],
    }  # fmt: skip
    text = (
        f'holdfast-status {{"t": 1, "runs": []}}\nkernel: …\nholdfast-status {json.dumps(told)}\nholdfast-sta'
    )
    monkeypatch.setattr(look, "console", lambda account, instance: text)
    answer = look.status(lab.another(), "r1")
    assert answer.code == 0
    assert answer.data["progress"]["age_s"] == 20
    assert answer.data["volume"]["generation"] == 1
    assert answer.data["move"] == {"generation": 2, "by": "i-0abc"}
    words = "\n".join(answer.lines)
    assert "step 1200, durable 1180, 60 s of work at risk" in words
    assert "deadline by ec2" in words


def test_status_of_a_silent_machine_is_no_success(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan())
    monkeypatch.setattr(look, "console", lambda account, instance: "")
    assert look.status(lab.another(), "r1").code == 75


BEFORE = {"phase": "interrupted", "step": 7}  # of the attempt that was the last one


@pytest.mark.parametrize(
    ("minutes", "word", "code"),
    [(10, {}, 0), (60, {}, 75), (10, {**BEFORE, "silent_s": 9000}, 0), (60, {**BEFORE, "silent_s": 9000}, 75),
     (60, {**BEFORE, "silent_s": 9}, 0)],
)  # fmt: skip
def test_status_of_a_machine_that_waits_is_no_success(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, minutes: int, word: dict[str, Any], code: int
) -> None:
    """For its volume, for S3, for another machine, or in a start that hangs; it is paid for."""
    launch.up(lab.account, lab.plan())
    (machine,) = lab.account.machines("r1")
    lab.clock[0] = machine["LaunchTime"].timestamp() + 60 * minutes
    told = {"t": int(lab.clock[0]) - 20, "runs": [{"dir": "run", **word}]}
    monkeypatch.setattr(look, "console", lambda *_: f"holdfast-status {json.dumps(told)}")
    answer = look.status(lab.another(), "r1")
    assert answer.code == code
    assert ("no training tells anything" in "\n".join(answer.lines)) == bool(code)


def test_status_hears_the_machine_that_trains_and_not_its_standby(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.up(lab.account, lab.plan())
    lab.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="holdfast-r1-spot", MaxSize=2)
    lab.client("autoscaling").set_desired_capacity(AutoScalingGroupName="holdfast-r1-spot", DesiredCapacity=2)
    first, second = (machine["InstanceId"] for machine in lab.account.machines("r1"))
    now = int(lab.clock[0])
    words = {
        first: {"t": now - 20, "runs": [{"dir": "run", "phase": "running", "step": 7}]},
        second: {"t": now - 1, "runs": [{"dir": "run"}]},
    }
    monkeypatch.setattr(look, "console", lambda _, name: f"holdfast-status {json.dumps(words[name])}")
    answer = look.status(lab.another(), "r1")
    assert answer.code == 0
    assert answer.data["progress"]["machine"] == first


def test_status_counts_what_lies_in_ebs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime, timezone

    since = datetime.fromtimestamp(lab.clock[0] - 73 * 3600, timezone.utc)  # a tenth of a month
    volume = {"Size": 100, "Iops": 3000, "Throughput": 125, "CreateTime": since}
    snapshots = [
        {"VolumeSize": 100, "StartTime": since},
        {"VolumeSize": 100, "FullSnapshotSizeInBytes": 20 << 30, "StartTime": since},
    ]
    assert look.kept(lab.another(), [volume], snapshots) == {
        "volumes": 1,
        "snapshots": 2,
        "usd_so_far": 1.4,
        "usd_a_month": 14.0,
        "prices_of": "2024-12-31",
    }
    mine = {**PRICES, "gp3-gib": Price(0.1, "2026-11-28")}
    assert look.kept(lab.another(), [volume], [], mine)["usd_a_month"] == 10.0
    launch.up(lab.account, lab.plan())
    assert not any("snapshot(s)" in line for line in look.status(lab.another(), "r1").lines)
    make_volume(lab, 1)
    (line,) = (line for line in look.status(lab.another(), "r1").lines if "snapshot(s)" in line)
    assert "1 volume(s), 0 snapshot(s): at most about $" in line
    assert "by prices of 2024-12-31, us-east-1 (--prices FILE)" in line


def test_status_counts_money(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan())
    monkeypatch.setattr(look, "spot_price", lambda account, kind, zone: 0.5)
    machines = [
        {
            "id": "i-1",
            "type": "g5.xlarge",
            "zone": "us-east-1a",
            "kind": "spot",
            "since": lab.clock[0] - 7200,
        },
        {
            "id": "i-2",
            "type": "g5.xlarge",
            "zone": "us-east-1a",
            "kind": "on-demand",
            "since": lab.clock[0] - 3600,
        },
    ]
    cost = look.cost(lab.another(), "r1", [], machines)
    assert (cost["machines"], cost["hours"], cost["usd"], cost["estimate"]) == (2, 3.0, 2.01, False)


@pytest.mark.parametrize("command", ["status", "logs", "stop", "mode", "move", "rehearse"])
def test_unknown_run_is_refused(lab: Lab, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"mode": ["spot"], "move": ["--zone", "any"]}.get(command, [])
    assert main([command, "nobody", *words], lab.client) in (75, 78)
    assert "nobody" in capsys.readouterr().err
    assert lab.calls == []


def test_wrong_use_is_64() -> None:
    with pytest.raises(SystemExit) as end:
        main(["explode", "r1"])
    assert end.value.code == 64
    assert main(["up", "r1", "--image", "x:latest", "--", "train", "{run_dir}"], lambda name: None) == 64


def test_up_needs_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "r1", "--", "train", "{run_dir}"], lambda name: None) == 64
    assert "--image" in capsys.readouterr().err


def test_json_is_one_object(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    launch.up(lab.account, lab.plan())
    main(["status", "r1", "--json"], lab.client)
    assert json.loads(capsys.readouterr().out)["run"] == "r1"
    main(["status", "r2", "--json"], lab.client)
    assert json.loads(capsys.readouterr().out)["exit_code"] == 78


class Quotas:
    """AWS's names of 2026. `of` has other vCPUs for some codes."""

    NAMES = {  # noqa: RUF012
        "L-1": "Running Dedicated p5 Hosts",
        "L-2": "All P5 Spot Instance Requests",
        "L-3": "All P4, P3 and P2 Spot Instance Requests",
        "L-4": "All G and VT Spot Instance Requests",
        "L-5": "Running On-Demand G and VT instances",
        "L-6": "Running On-Demand P instances",
        "L-7": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    }

    def __init__(self, vcpus: float, of: dict[str, float] | None = None) -> None:
        self._vcpus = vcpus
        self._of = of or {}

    def get_service_quota(self, **arguments: str) -> Any:
        return {"Quota": {"Value": self._of.get(arguments["QuotaCode"], self._vcpus)}}

    def get_paginator(self, call: str) -> Any:
        assert call == "list_aws_default_service_quotas"
        return self

    def paginate(self, ServiceCode: str) -> Any:  # noqa: N803
        assert ServiceCode == "ec2"
        return [{"Quotas": [{"QuotaCode": code, "QuotaName": name} for code, name in self.NAMES.items()]}]


def findings(lab: Lab, **changes: Any) -> dict[str, bool | None]:
    answer = checks.check(lab.another(), lab.plan(**changes))
    return {finding["what"]: finding["good"] for finding in answer.data["findings"]}


def test_check_changes_nothing_and_finds_what_is_missing(lab: Lab) -> None:
    lab.stand_ins["service-quotas"] = Quotas(8)
    good = findings(lab)
    assert good["account"] is True
    assert good["machines"] is True
    assert good["machine image"] is True
    assert good["network"] is True
    assert good["quota All G and VT Spot Instance Requests"] is True
    assert findings(lab, types=("x99.large",))["machines"] is False
    assert lab.calls == []


def test_check_sees_a_quota_of_none(lab: Lab) -> None:
    lab.stand_ins["service-quotas"] = Quotas(0)
    answer = checks.check(lab.another(), lab.plan(fallback_minutes=20))
    assert answer.code == 78
    assert sum(finding["good"] is False for finding in answer.data["findings"]) == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [("p5.4xlarge", "L-2"), ("p4d.24xlarge", "L-3"), ("gr6.4xlarge", "L-4"), ("g6.xlarge", "L-4")],
)
def test_check_asks_for_the_quota_that_counts_the_type(lab: Lab, kind: str, code: str) -> None:
    """P5 has its own; the quota of P4 says nothing about it."""
    lab.stand_ins["service-quotas"] = Quotas(1000, of={code: 0})
    good = findings(lab, types=(kind,))
    assert {name: value for name, value in good.items() if name.startswith("quota")} == {
        f"quota {Quotas.NAMES[code]}": False
    }


def sweep_words(folder: Path, text: str, *more: str) -> list[str]:
    file = folder / "runs.jsonl"
    file.write_text(text)
    words = ["render", "r1", "--gpu", "a100", "--image", plans.PLAIN.image, "--sweep", str(file), *more]
    return [*words, "--user-data", "--", "train", "--lr", "{lr}", "--checkpoint-dir", "{run_dir}"]


def test_the_runs_of_a_sweep_reach_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = sweep_words(
        tmp_path, '{"name": "a", "lr": 1e-4}\n{"name": "b", "lr": 0.3}\n\n', "--mig-slices", "7"
    )
    assert main(words, lambda name: None) == 0
    made = json.loads(capsys.readouterr().out.removeprefix("#cloud-config\n"))
    files = {file["path"]: file["content"] for file in made["write_files"]}
    assert files["/etc/holdfast/sweep.jsonl"] == '{"name": "a", "lr": 1e-4}\n{"name": "b", "lr": 0.3}\n'
    assert "HF_SLICES=7\n" in files["/etc/holdfast/run.env"]
    assert "HF_RUN_DIRS=/mnt/holdfast/runs/a:/mnt/holdfast/runs/b\n" in files["/etc/holdfast/run.env"]
    trainers = [path for path in files if path.startswith("/etc/systemd/system/holdfast")]
    assert "/etc/systemd/system/holdfast.service" in trainers
    assert not any("@" in path for path in trainers)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "a", "lr": 1}\n{"name": "a", "lr": 2}\n', "line 2: the name 'a' is that of line 1"),
        ('{"name": "a", "lr": 1}\n# b\n', "line 2: it is no JSON object"),
        ('{"name": "a/b", "lr": 1}\n', "line 1: the name 'a/b'"),
        ('{"lr": 1}\n', "line 1: the name None"),
        ('{"name": "a", "lr": 1}\n{"name": "b"}\n', "line 2: it has no value for {lr}"),
        ("".join(f'{{"name": "r{n}", "lr": 1}}\n' for n in range(101)), "line 101: a machine takes 100"),
        ("\n", "is empty"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(sweep_words(tmp_path, text, "--mig-slices", "7"), lambda name: None) == 64
    assert why in capsys.readouterr().err


def test_slices_and_a_sweep_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = sweep_words(tmp_path, '{"name": "a", "lr": 1}\n')
    assert main(words, lambda name: None) == 64
    assert "go together" in capsys.readouterr().err
    assert main([*words[:6], "--mig-slices", "7", *words[8:]], lambda name: None) == 64
    assert "go together" in capsys.readouterr().err
    assert main([*words[:7], str(tmp_path / "none"), *words[8:]], lambda name: None) == 64
    assert "No such file" in capsys.readouterr().err


def test_check_says_when_no_quota_names_the_type(lab: Lab) -> None:
    lab.stand_ins["service-quotas"] = Quotas(1000)
    assert findings(lab, types=("p6-b200.48xlarge",))["quota of spot p6-b200.48xlarge"] is None
    assert lab.calls == []


@pytest.mark.parametrize(
    ("on", "key", "says"),
    [(True, "arn:aws:kms:us-east-1:1:key/x", True), (True, "alias/aws/ebs", False), (False, "key", False)],
)
def test_check_tells_of_a_key_for_volumes(lab: Lab, on: bool, key: str, says: bool) -> None:
    real = lab.client("ec2")

    class Ec2:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def get_ebs_encryption_by_default(self) -> Any:
            return {"EbsEncryptionByDefault": on}

        def get_ebs_default_kms_key_id(self) -> Any:
            return {"KmsKeyId": key}

    lab.account._made["ec2"] = Ec2()
    found = checks.check(lab.another(), lab.plan()).lines
    assert any("encrypts by default" in line for line in found) == says


def test_check_refuses_another_partition(lab: Lab) -> None:
    class Sts:
        def get_caller_identity(self) -> Any:
            return {"Arn": "arn:aws-us-gov:iam::123456789012:user/me"}

    lab.stand_ins["sts"] = Sts()
    answer = checks.check(lab.another(), lab.plan())
    assert answer.code == 78
    assert "GovCloud" in answer.lines[0]


def test_check_sees_a_missing_image(lab: Lab) -> None:
    import plans

    plan = plans.plan(machine_image="/aws/service/none", vpc="", subnets=())
    answer = checks.check(lab.another(), plan)
    assert {f["what"]: f["good"] for f in answer.data["findings"]}["machine image"] is False


def test_up_refuses_what_check_refuses(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.stand_ins["service-quotas"] = Quotas(0)
    image = lab.plan().machine_image
    words = ["up", "r1", "--ami", image, "--setup", "true", "--", "train", "{run_dir}"]
    assert main(words, lab.client) == 78
    assert "nothing was created" in capsys.readouterr().err
    assert lab.calls == []


def test_render_prints_what_up_would_send(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "r1", "--setup", "true", "--fallback-minutes", "20"]
    trainer = ["--", "train", "{run_dir}"]
    made = {}
    for kind in ([], ["--user-data"], ["--policy"]):
        assert main([*words, *kind, *trainer], lab.client) == 0
        made["".join(kind)] = capsys.readouterr().out
    resources = json.loads(made[""])["Resources"]
    assert {"Spot", "OnDemand", "NoSpot", "SpotIsBack"} <= set(resources)
    (document,) = (p["PolicyDocument"] for p in resources["Role"]["Properties"]["Policies"])
    assert json.loads(made["--policy"]) == document
    assert made["--user-data"].startswith("#cloud-config\n")
    assert lab.calls == []


def test_simulate_prints_a_row_a_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--draw", "3", "--hours", "2"], lambda name: None) == 0
    out = capsys.readouterr().out
    assert all(mode in out for mode in ("spot ", "spot with fallback", "on-demand"))
    assert all(f"\n{strategy} " in out for strategy in ("never", "on-notice", "on-rebalance", "always"))
    for wrong in (
        ["--draw", "0"],
        ["--hours", "0"],
        ["--zones", "0"],
        ["--lead", "-1"],
        ["--recommended", "2"],
    ):
        assert main(["simulate", *wrong], lambda name: None) == 64


def test_simulate_takes_the_price_of_a_type(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--draw", "1", "--hours", "1"]
    assert main([*words, "--type", "p5.48xlarge"], lambda name: None) == 0
    assert "on-demand $55.04/h" in capsys.readouterr().out
    assert main([*words, "--type", "p5.48xlarge", "--on-demand-price", "7"], lambda name: None) == 0
    assert "on-demand $7.0/h" in capsys.readouterr().out
    assert main([*words, "--type", "p9.xlarge"], lambda name: None) == 64
    assert "--on-demand-price" in capsys.readouterr().err


def test_commands_reach_their_functions(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    launch.up(lab.account, lab.plan())
    zone = group(lab)["AvailabilityZones"][0]
    for words in (["mode", "r1", "on-demand"], ["move", "r1", "--zone", zone], ["gc", "r1"]):
        assert main([*words, "--dry-run"], lab.client) == 0, words
    assert "r1 may use" in capsys.readouterr().out
