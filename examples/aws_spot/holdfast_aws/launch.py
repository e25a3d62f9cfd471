"""`hf-aws up`: the stack of a run, and its first machine. Run again, it brings the stack up to date and goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from holdfast_aws import bucket, instance_types
from holdfast_aws.account import HUMAN, LATER, Account, Answer, CommandError
from holdfast_aws.cloud import RUN_TAG
from holdfast_aws.plan import LaunchPlan, stack_of
from holdfast_aws.registers import END, TRAINS, UP, Book, parking, parse, path_of
from holdfast_aws.stop import StopError
from holdfast_aws.template import most_of, template

BODY_LIMIT = 51200  # bytes of a template that comes without a bucket
POLL = 5.0  # seconds
WAIT = 1200.0
ENDING = 600.0  # a parked machine tries so long to end the run


def body(plan: LaunchPlan) -> str:
    text = json.dumps(template(plan), separators=(",", ":"))
    if len(text) > BODY_LIMIT:
        raise CommandError(HUMAN, f"the template has {len(text)} bytes, CloudFormation takes {BODY_LIMIT}")
    return text


def up(account: Account, plan: LaunchPlan, max_hours: float | None = None) -> Answer:
    """`max_hours`: None leaves a limit that is still to come; 0 forgets it."""
    plan = ready(account, plan)
    bucket.must_fit(plan, _book(account, plan.run), account.volumes(plan.run))
    if plan.in_s3:
        bucket.prepare(account, plan)
    name = stack_of(plan.run)
    arguments: dict[str, Any] = {
        "StackName": name,
        "TemplateBody": body(plan),
        "Parameters": [
            {"ParameterKey": "Vpc", "ParameterValue": plan.vpc},
            {"ParameterKey": "Subnets", "ParameterValue": ",".join(plan.subnets)},
            {"ParameterKey": "Image", "ParameterValue": plan.machine_image},
        ],
        "Capabilities": ["CAPABILITY_IAM"],
        "Tags": [{"Key": RUN_TAG, "Value": plan.run}],
    }
    state = stack_state(account, name, plan.run)
    if state is None:
        account.change(f"create the stack {name}", "cloudformation", "create_stack", **arguments)
    elif state in ("ROLLBACK_COMPLETE", "CREATE_FAILED", "DELETE_FAILED"):
        raise CommandError(
            HUMAN, f"the stack {name} is {state}: hf-aws down {plan.run}, then up again (data stays)"
        )
    elif state.endswith("_IN_PROGRESS"):
        raise CommandError(LATER, f"the stack {name} is {state}: try again when that is over")
    else:
        try:
            account.change(
                f"bring the stack {name} up to date", "cloudformation", "update_stack", **arguments
            )
        except CommandError as problem:
            if "No updates are to be performed" not in str(problem):
                raise
    if not account.dry_run:
        _wait_for(account, name)
    _forgive(account, plan.run)
    _replace_parked(account, plan.run)
    _start(account, plan, max_hours)
    return Answer(
        {"run": plan.run, "stack": name, "subnets": list(plan.subnets), "changes": account.changes},
        [f"the run {plan.run} is on its way: hf-aws status {plan.run}"],
    )


def ready(account: Account, plan: LaunchPlan) -> LaunchPlan:
    """The plan with what the account and EC2 say: network, types, network cards, bucket."""
    return bucket.resolved(account, instance_types.resolved(account, with_network(account, plan)))


def _book(account: Account, run: str) -> Book:
    try:
        return parse(run, account.parameters(path_of(run)))
    except StopError as error:
        raise CommandError(HUMAN, error.message) from error


def _write_once(account: Account, run: str, name: str, value: str, what: str) -> None:
    try:
        account.change(
            what, "ssm", "put_parameter", Name=f"{path_of(run)}/{name}", Value=value, Type="String", Overwrite=False
        )  # fmt: skip
    except CommandError as problem:
        if "ParameterAlreadyExists" not in str(problem):
            raise


def _forgive(account: Account, run: str) -> None:
    """The machines that were given up had another set-up, perhaps."""
    book = _book(account, run)
    if book.given_up_in_a_row:
        _write_once(
            account, run, f"given-up/{max(book.given_up) + 1}", UP, "forget the machines that were given up"
        )


def _replace_parked(account: Account, run: str) -> None:
    """Such a machine trains nothing and ends the run soon. Who writes its outcome first, decides."""
    here = {machine["InstanceId"]: machine["State"]["Name"] for machine in account.machines(run)}
    book = _book(account, run)
    parked = [
        name
        for name, outcome in book.parked.items()
        if outcome != TRAINS and here.get(name) in ("pending", "running")
    ]
    for name in parked:
        register = f"{parking(name, book.times[name])}/outcome"
        _write_once(account, run, register, UP, f"go on although {name} waits for a person")
    outcomes = _book(account, run).parked
    for name in parked:
        if outcomes[name] not in (END, TRAINS):
            account.change(
                f"let {name} go; the group starts another",
                "autoscaling",
                "terminate_instance_in_auto_scaling_group",
                InstanceId=name,
                ShouldDecrementDesiredCapacity=False,
            )
    _wait_until_ended(account, run, {name for name in parked if outcomes[name] == END})


def _wait_until_ended(account: Account, run: str, ending: set[str]) -> None:
    """These machines set their groups to 0 just now; what is asked for before would be undone."""

    def not_yet() -> bool:
        return any(
            group["DesiredCapacity"] and ending & {machine["InstanceId"] for machine in group["Instances"]}
            for group in account.groups(run)
        )

    until = account.now() + ENDING
    while not account.dry_run and not_yet():
        if account.now() > until:
            raise CommandError(
                LATER,
                f"a parked machine of {run} has not ended the run yet: hf-aws stop {run}, then up again",
            )
        account.say("the parked machine ends the run; then it goes on")
        account.sleep(POLL)


def _start(account: Account, plan: LaunchPlan, max_hours: float | None) -> None:
    groups = account.groups(plan.run)
    for name in plan.groups:
        # It would end a healthy machine for the sake of even zones; CloudFormation cannot say so.
        account.change(
            f"let {name} alone whatever the zones are",
            "autoscaling",
            "suspend_processes",
            AutoScalingGroupName=name,
            ScalingProcesses=["AZRebalance"],
        )
        mine = [group for group in groups if group["AutoScalingGroupName"] == name]
        stopped = [process["ProcessName"] for group in mine for process in group["SuspendedProcesses"]]
        if "AlarmNotification" in stopped:
            account.change(
                f"let {name} hear its alarms again",
                "autoscaling",
                "resume_processes",
                AutoScalingGroupName=name,
                ScalingProcesses=["AlarmNotification"],
            )
        if max_hours:
            _limit(account, name, max_hours)
        _lift_limit(account, name, "max-hours-1" if max_hours == 0 else "max-hours-2")
        most = most_of(plan, spot=name == plan.groups[0])
        if any(group["MaxSize"] != most for group in mine):
            account.change(
                f"let {name} have machines again",
                "autoscaling",
                "update_auto_scaling_group",
                AutoScalingGroupName=name,
                MaxSize=most,
            )
    # Also beside on-demand, which has it while spot has none: without a wish for spot it would never be let go.
    first = [group for group in groups if group["AutoScalingGroupName"] == plan.groups[0]]
    if not any(group["DesiredCapacity"] for group in first):
        account.change(
            f"ask for {plan.nodes} machine{'s' if plan.nodes > 1 else ''}",
            "autoscaling",
            "set_desired_capacity",
            AutoScalingGroupName=plan.groups[0],
            DesiredCapacity=plan.nodes,
            HonorCooldown=False,
        )


def _lift_limit(account: Account, group: str, since: str) -> None:
    """From this name on: the second one is that of an older version of the kit."""
    for action in account.pages(
        "autoscaling", "describe_scheduled_actions", "ScheduledUpdateGroupActions", AutoScalingGroupName=group
    ):
        if since <= action["ScheduledActionName"] <= "max-hours-2":
            account.change(
                f"forget the limit of {group}",
                "autoscaling",
                "delete_scheduled_action",
                AutoScalingGroupName=group,
                ScheduledActionName=action["ScheduledActionName"],
            )


def _limit(account: Account, group: str, hours: float) -> None:
    """At that time AWS itself ends the group. It takes no machine then, whatever an alarm or a machine asks for; `up`
    gives it room again. A limit that was there is replaced.
    """
    at = datetime.fromtimestamp(account.now(), timezone.utc) + timedelta(hours=hours)
    account.change(
        f"end {group} at {at:%Y-%m-%d %H:%M} UTC",
        "autoscaling",
        "put_scheduled_update_group_action",
        AutoScalingGroupName=group,
        ScheduledActionName="max-hours-1",
        StartTime=at,
        MaxSize=0,
        DesiredCapacity=0,
    )


def with_network(account: Account, plan: LaunchPlan) -> LaunchPlan:
    """The plan with its network: what was named, else the default one's subnets in zones that have the machines."""
    filters = [{"Name": "default-for-az", "Values": ["true"]}]
    if plan.subnets:
        found = account.ask("ec2", "describe_subnets", SubnetIds=list(plan.subnets))["Subnets"]
    else:
        found = account.ask("ec2", "describe_subnets", Filters=filters)["Subnets"]
        offered = zones_that_offer(account, plan.types)
        found = [subnet for subnet in found if subnet["AvailabilityZone"] in offered]
    if not found:
        raise CommandError(
            HUMAN,
            f"no default subnet in a zone that offers {', '.join(plan.types)}: name --subnets, or another --region",
        )
    vpcs = {subnet["VpcId"] for subnet in found}
    if len(vpcs) > 1:
        raise CommandError(
            HUMAN, f"the subnets belong to several networks ({', '.join(sorted(vpcs))}): name those of one"
        )
    found = sorted(found, key=lambda subnet: str(subnet["AvailabilityZone"]))[: 1 if plan.nodes > 1 else None]
    return replace(plan, vpc=vpcs.pop(), subnets=tuple(subnet["SubnetId"] for subnet in found))


def zones_that_offer(account: Account, types: tuple[str, ...]) -> dict[str, set[str]]:
    """Zone -> those of the types that it has."""
    offered: dict[str, set[str]] = {}
    for offer in account.pages(
        "ec2",
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(types)}],
    ):
        offered.setdefault(offer["Location"], set()).add(offer["InstanceType"])
    return offered


def stack_state(account: Account, name: str, run: str = "") -> str | None:
    """None: there is no such stack. With `run`: refuses the stack of another run; a-b and a_b have one name there."""
    try:
        stacks = account.ask("cloudformation", "describe_stacks", StackName=name)["Stacks"]
    except CommandError as problem:
        if "does not exist" in str(problem):
            return None
        raise
    if not stacks:
        return None
    owners = [tag["Value"] for tag in stacks[0].get("Tags", []) if tag["Key"] == RUN_TAG]
    if run and owners not in ([], [run]):
        raise CommandError(
            HUMAN, f"the stack {name} is that of the run {owners[0]}: {run} needs another name"
        )
    return str(stacks[0]["StackStatus"])


def _wait_for(account: Account, name: str) -> None:
    until = account.now() + WAIT
    while True:
        state = stack_state(account, name) or "gone"
        if state in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return
        if not state.endswith("_IN_PROGRESS"):
            events = account.ask("cloudformation", "describe_stack_events", StackName=name)["StackEvents"]
            why = next(
                (e.get("ResourceStatusReason", "") for e in events if "FAILED" in e["ResourceStatus"]), ""
            )
            raise CommandError(
                HUMAN, f"the stack {name} is {state}: {why or 'see its events'}; hf-aws down removes it"
            )
        if account.now() > until:
            raise CommandError(LATER, f"the stack {name} is still {state} after {WAIT / 60:.0f} min")
        account.sleep(POLL)
