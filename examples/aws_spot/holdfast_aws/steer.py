"""`hf-aws stop`, `mode` and `move`: they change what the groups want. The machine hears it, commits and leaves."""

from __future__ import annotations

import copy
from typing import Any

from holdfast_aws.account import HUMAN, LATER, Account, Answer, CommandError
from holdfast_aws.plan import stack_of

POLL = 10.0  # seconds
WAIT = 900.0
RUN_IS_KEPT = "everything is kept: hf-aws up goes on"


def stop(account: Account, run: str, *, wait: bool = True) -> Answer:
    """Checkpoint, no machine, all kept."""
    groups = account.must_have_groups(run)
    for group in groups:
        name = group["AutoScalingGroupName"]
        # First: an alarm of a minute ago could start a machine again.
        account.change(
            f"keep alarms from {name}",
            "autoscaling",
            "suspend_processes",
            AutoScalingGroupName=name,
            ScalingProcesses=["AlarmNotification"],
        )
    _set_to_zero(account, groups)
    left = _wait_until_gone(account, run) if wait and not account.dry_run else []
    if left:
        names = ", ".join(left)
        raise CommandError(
            LATER, f"{names} still runs after {WAIT / 60:.0f} min, and costs money: hf-aws status {run}"
        )
    return Answer({"run": run, "changes": account.changes}, [f"the run {run} is stopped; {RUN_IS_KEPT}"])


def _set_to_zero(account: Account, groups: list[Any]) -> None:
    for group in groups:
        name = group["AutoScalingGroupName"]
        account.change(
            f"set {name} to 0",
            "autoscaling",
            "set_desired_capacity",
            AutoScalingGroupName=name,
            DesiredCapacity=0,
            HonorCooldown=False,
        )


def _wait_until_gone(account: Account, run: str) -> list[str]:
    until = account.now() + WAIT
    while True:
        left = [machine["InstanceId"] for machine in account.machines(run)]
        if not left or account.now() > until:
            return left
        account.say(f"{', '.join(left)} commits and leaves")
        account.sleep(POLL)
        # A machine that had looked a moment before may have asked for a second one.
        _set_to_zero(account, [group for group in account.groups(run) if group["DesiredCapacity"]])


def mode(account: Account, run: str, kind: str, *, now: bool = False) -> Answer:
    """spot or on-demand, for the machines that come. With `now` the present one commits and is replaced."""
    group = account.must_have_groups(run)[0]
    name = group["AutoScalingGroupName"]
    mixed: dict[str, Any] = copy.deepcopy(group["MixedInstancesPolicy"])
    # A launch template by name and by id at once is refused.
    mixed["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    mixed["InstancesDistribution"]["OnDemandBaseCapacity"] = (
        max(1, group["MaxSize"]) if kind == "on-demand" else 0
    )
    account.change(
        f"let {name} ask for {kind} machines",
        "autoscaling",
        "update_auto_scaling_group",
        AutoScalingGroupName=name,
        MixedInstancesPolicy=mixed,
    )
    if now:
        _replace(account, group)
    then = "the present machine is replaced" if now else "the present machine trains on; --now replaces it"
    return Answer(
        {"run": run, "mode": kind, "changes": account.changes}, [f"machines of {run} are {kind} now; {then}"]
    )


def move(account: Account, run: str, zone: str) -> Answer:
    """To this zone, and no other until `--zone any`. A volume follows the machine; S3 is there already."""
    groups = account.must_have_groups(run)
    stack = account.ask("cloudformation", "describe_stacks", StackName=stack_of(run))["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    subnets = [one for one in outputs.get("Subnets", "").split(",") if one]
    if not subnets:
        raise CommandError(HUMAN, f"the stack {stack_of(run)} names no subnets: was it made by hf-aws up?")
    found = account.ask("ec2", "describe_subnets", SubnetIds=subnets)["Subnets"]
    zones = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in found}
    if zone != "any" and zone not in zones:
        raise CommandError(HUMAN, f"the run has no subnet in {zone}; it has {', '.join(sorted(zones))}")
    chosen = subnets if zone == "any" else [zones[zone]]
    for group in groups:
        name = group["AutoScalingGroupName"]
        account.change(
            f"open {name} to {zone if zone != 'any' else 'all its zones'}",
            "autoscaling",
            "update_auto_scaling_group",
            AutoScalingGroupName=name,
            VPCZoneIdentifier=",".join(chosen),
        )
        if zone != "any" and any(i["AvailabilityZone"] != zone for i in group["Instances"]):
            _replace(account, group)
    again = "" if zone == "any" else f"; when it is there: hf-aws move {run} --zone any"
    where = "all its zones" if zone == "any" else zone
    return Answer({"run": run, "zone": zone, "changes": account.changes}, [f"{run} may use {where}{again}"])


def _replace(account: Account, group: Any) -> None:
    for instance in group["Instances"]:
        account.change(
            f"let {instance['InstanceId']} commit and go; the group starts another",
            "autoscaling",
            "terminate_instance_in_auto_scaling_group",
            InstanceId=instance["InstanceId"],
            ShouldDecrementDesiredCapacity=False,
        )
