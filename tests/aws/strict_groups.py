"""Auto Scaling as it acts: groups launch and replace with time, hooks hold, alarms and scaling policies do things."""

from __future__ import annotations

import itertools
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import moto.autoscaling.models as scaling
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from strict import Answer, Params, Real, StrictAws

LAUNCH = 30.0  # seconds from a group's decision to a running instance
MINUTE = 60.0


@dataclass
class Waiting:
    """An instance that a lifecycle hook holds."""

    group: str
    hook: str
    until: float
    timeout: float


@dataclass
class Alarm:
    """As CloudFormation or PutMetricAlarm describe it."""

    name: str
    described: Any
    state: str = "INSUFFICIENT_DATA"
    breaching: int = 0  # minutes in a row


@dataclass
class Launching:
    group: str
    at: float


@dataclass
class Groups:
    strict: StrictAws
    capacity: dict[str, int] | None = None  # zone -> spot machines that are there; None: enough
    activities: list[Any] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    launching: list[Launching] = field(default_factory=list)
    policies: dict[str, Any] = field(default_factory=dict)  # ARN -> its properties
    alarms: dict[str, Alarm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settling = False
        self._minute = self.strict.clock.now() // MINUTE
        self._order = itertools.count(1)
        self._kept = (
            scaling.FakeAutoScalingGroup.set_desired_capacity,
            scaling.AutoScalingBackend.notify_terminate_instances,
        )
        # moto launches and terminates at once; here `settle` does it when its time has come.
        scaling.FakeAutoScalingGroup.set_desired_capacity = _only_note
        scaling.AutoScalingBackend.notify_terminate_instances = _only_forget

    def restore(self) -> None:
        (
            scaling.FakeAutoScalingGroup.set_desired_capacity,
            scaling.AutoScalingBackend.notify_terminate_instances,
        ) = self._kept

    # Time.

    def settle(self) -> None:
        if self._settling:
            return
        self._settling = True
        try:
            now = self.strict.clock.now()
            minute = now // MINUTE
            if minute - self._minute > 600:  # nobody looked for hours: nothing new would happen
                self._minute = minute - 600
            while self._minute < minute:
                self._minute += 1
                self._move(self._minute * MINUTE)
                self._watch()
            self._move(now)
        finally:
            self._settling = False

    def _move(self, now: float) -> None:
        for instance, held in list(self.waiting.items()):
            if now >= held.until:
                self._terminate(instance, held.group)
        for group in list(self._groups().values()):
            for member in list(group.instance_states):
                if member.health_status == "Unhealthy" and member.instance.id not in self.waiting:
                    self._end(group, member, "a health check of an instance said Unhealthy")
            coming = [one for one in self.launching if one.group == group.name]
            there = [m for m in group.instance_states if m.instance.id not in self.waiting]
            missing = (group.desired_capacity or 0) - len(there) - len(coming)
            for _ in range(missing):
                self.launching.append(Launching(group.name, now + LAUNCH))
            by_age = sorted(there, key=lambda m: m.instance.launch_time)
            if "NewestInstance" in (group.termination_policies or []):
                by_age.reverse()
            for member in by_age[: max(0, -missing)]:
                self._end(group, member, "the desired capacity was reduced")
        for one in list(self.launching):
            if one.group not in self._groups():
                self.launching.remove(one)
            elif now >= one.at:
                self.launching.remove(one)
                group = self._groups()[one.group]
                there = [m for m in group.instance_states if m.instance.id not in self.waiting]
                if len(there) < (group.desired_capacity or 0):
                    self._launch(group)

    def _launch(self, group: Any) -> None:
        strict = self.strict
        backend = strict.ec2()
        running = sum(1 for i in backend.all_instances() if i._state.name in ("pending", "running"))
        subnets = [backend.get_subnet(s) for s in (group.vpc_zone_identifier or "").split(",") if s]
        places = (
            [s for s in subnets if not _spot(group) or self._room(s.availability_zone)] if subnets else [None]
        )
        if running >= strict.quotas.instances:
            self._note(group, "Failed", "Launching a new EC2 instance", "MaxSpotInstanceCountExceeded")
        elif not places:
            self._note(group, "Failed", "Launching a new EC2 instance", "UnfulfillableCapacity")
        else:
            kept = group.vpc_zone_identifier
            place = strict.random.choice(places)
            group.vpc_zone_identifier = place.id if place is not None else None
            group.replace_autoscaling_group_instances(1, group.get_propagated_tags())
            group.vpc_zone_identifier = kept
            made = group.instance_states[-1].instance
            self._note(group, "Successful", f"Launching a new EC2 instance: {made.id}")

    def _room(self, zone: str) -> bool:
        if self.capacity is None:
            return True
        used = sum(
            1
            for i in self.strict.ec2().all_instances()
            if i._state.name in ("pending", "running") and i._placement.zone == zone
        )
        return used < self.capacity.get(zone, 0)

    def _end(self, group: Any, member: Any, cause: str) -> None:
        """Terminates a member, or lets the group's hook hold it first."""
        instance = member.instance.id
        hook = next(
            (
                h
                for h in self._backend().describe_lifecycle_hooks(group.name, None)
                if h.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING"
            ),
            None,
        )
        if hook is not None:
            timeout = float(hook.heartbeat_timeout)
            until = self.strict.clock.now() + timeout
            self.waiting[instance] = Waiting(group.name, hook.name, until, timeout)
            member.lifecycle_state = "Terminating:Wait"
            self._note(
                group, "WaitingForTerminateLifecycleAction", f"Terminating EC2 instance: {instance}", cause
            )
        else:
            self._terminate(instance, group.name, cause)

    def _terminate(self, instance: str, name: str, cause: str = "the hook has ended") -> None:
        self.waiting.pop(instance, None)
        group = self._groups().get(name)
        if group is not None:
            group.instance_states = [m for m in group.instance_states if m.instance.id != instance]
            self._note(group, "Successful", f"Terminating EC2 instance: {instance}", cause)
        self.strict.ec2().terminate_instances([instance])
        self.strict.lose(instance)

    def _note(self, group: Any, status: str, description: str, cause: str = "") -> None:
        self.activities.append(
            {
                "ActivityId": f"{next(self._order):08d}",
                "AutoScalingGroupName": group.name,
                "Description": description,
                "Cause": cause or "a difference between desired and actual capacity",
                "StartTime": self.strict.date(),
                "StatusCode": status,
                "StatusMessage": cause if status == "Failed" else "",
                "Progress": 100,
            }
        )

    # Alarms, once a minute.

    def _watch(self) -> None:
        for alarm in self.alarms.values():
            described = alarm.described
            value = self._value(described)
            if value is None:
                breaching = described.get("TreatMissingData") == "breaching"
            else:
                threshold = float(described["Threshold"])
                breaching = {
                    "GreaterThanOrEqualToThreshold": value >= threshold,
                    "GreaterThanThreshold": value > threshold,
                    "LessThanThreshold": value < threshold,
                    "LessThanOrEqualToThreshold": value <= threshold,
                }[described["ComparisonOperator"]]
            alarm.breaching = alarm.breaching + 1 if breaching else 0
            was = alarm.state
            alarm.state = "ALARM" if alarm.breaching >= int(described["EvaluationPeriods"]) else "OK"
            # An action is taken at the change, and a scaling policy again while the alarm lasts.
            if alarm.state == "ALARM" and (was != "ALARM" or alarm.breaching):
                for action in described.get("AlarmActions", []):
                    self._act(action)

    def _act(self, arn: str) -> None:
        policy = self.policies.get(arn)
        if policy is None:
            return
        group = self._groups().get(policy["AutoScalingGroupName"])
        if group is None or policy.get("AdjustmentType") != "ExactCapacity":
            return
        if any(process["ProcessName"] == "AlarmNotification" for process in group.suspended_processes):
            return
        wanted = int(policy["StepAdjustments"][0]["ScalingAdjustment"])
        if group.desired_capacity != wanted:
            group.desired_capacity = wanted
            self._note(group, "Successful", f"Setting desired capacity to {wanted}", "an alarm")

    def _value(self, alarm: Any) -> float | None:
        if "Metrics" not in alarm:
            return self._metric(alarm["MetricName"], alarm.get("Dimensions", []))
        known: dict[str, float | None] = {}
        answer = None
        for query in alarm["Metrics"]:
            if "MetricStat" in query:
                metric = query["MetricStat"]["Metric"]
                known[query["Id"]] = self._metric(metric["MetricName"], metric.get("Dimensions", []))
        for query in alarm["Metrics"]:
            if query.get("ReturnData", True):
                found = known.get(query["Id"])
                answer = _computed(query["Expression"], known) if "Expression" in query else found
        return answer

    def _metric(self, name: str, dimensions: Any) -> float | None:
        group = self._groups().get(next((d["Value"] for d in dimensions), ""))
        if group is None or name not in _metrics_of(group):
            return None
        if name == "GroupDesiredCapacity":
            return float(group.desired_capacity or 0)
        if name == "GroupInServiceInstances":
            return float(len([m for m in group.instance_states if m.instance.id not in self.waiting]))
        return None

    # Auto Scaling's calls that moto has not.

    def autoscaling_DescribeScalingActivities(self, params: Params, real: Real) -> Answer:  # noqa: N802
        name = params.get("AutoScalingGroupName")
        found = [a for a in self.activities if name in (None, a["AutoScalingGroupName"])]
        return {"Activities": list(reversed(found))}

    def autoscaling_TerminateInstanceInAutoScalingGroup(self, params: Params, real: Real) -> Answer:  # noqa: N802
        for group in self._groups().values():
            for member in list(group.instance_states):
                if member.instance.id == params["InstanceId"]:
                    if params["ShouldDecrementDesiredCapacity"]:
                        group.desired_capacity -= 1
                    self._end(group, member, "a user asked for it")
                    return {"Activity": self.activities[-1]}
        raise _refuse(
            "ValidationError", f"Instance Id not found - No managed instance found: {params['InstanceId']}"
        )

    def autoscaling_CompleteLifecycleAction(self, params: Params, real: Real) -> Answer:  # noqa: N802
        held = self._held(params)
        self._terminate(params["InstanceId"], held.group)
        return {}

    def autoscaling_RecordLifecycleActionHeartbeat(self, params: Params, real: Real) -> Answer:  # noqa: N802
        held = self._held(params)
        held.until = self.strict.clock.now() + held.timeout
        return {}

    def autoscaling_DescribeAutoScalingInstances(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        for member in answer["AutoScalingInstances"]:
            if member["InstanceId"] in self.waiting:
                member["LifecycleState"] = "Terminating:Wait"
        return answer

    def autoscaling_DescribeAutoScalingGroups(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        for group in answer["AutoScalingGroups"]:
            for member in group["Instances"]:
                if member["InstanceId"] in self.waiting:
                    member["LifecycleState"] = "Terminating:Wait"
        return answer

    def autoscaling_PutScalingPolicy(self, params: Params, real: Real) -> Answer:  # noqa: N802
        return {"PolicyARN": self._policy(params["PolicyName"], params), "Alarms": []}

    def autoscaling_DescribePolicies(self, params: Params, real: Real) -> Answer:  # noqa: N802
        name = params.get("AutoScalingGroupName")
        return {
            "ScalingPolicies": [
                {"PolicyARN": arn, **policy}
                for arn, policy in self.policies.items()
                if name in (None, policy["AutoScalingGroupName"])
            ]
        }

    def autoscaling_UpdateAutoScalingGroup(self, params: Params, real: Real) -> Answer:  # noqa: N802
        """What an update does not name stays; moto forgets the mix, and spot becomes on-demand."""
        group = self._groups().get(params["AutoScalingGroupName"])
        kept = group.mixed_instances_policy if group is not None else None
        answer = real(params)
        if kept and not {"MixedInstancesPolicy", "LaunchTemplate"} & params.keys():
            group.mixed_instances_policy = kept
        return answer

    def autoscaling_SetDesiredCapacity(self, params: Params, real: Real) -> Answer:  # noqa: N802
        group = self._groups().get(params["AutoScalingGroupName"])
        if group is None:
            raise _refuse(
                "ValidationError", f"AutoScalingGroup name not found - {params['AutoScalingGroupName']}"
            )
        if not group.min_size <= params["DesiredCapacity"] <= group.max_size:
            raise _refuse(
                "ValidationError", f"New SetDesiredCapacity value {params['DesiredCapacity']} is out of range"
            )
        return real(params)

    # CloudWatch and CloudFormation.

    def cloudwatch_PutMetricAlarm(self, params: Params, real: Real) -> Answer:  # noqa: N802
        self.alarms[params["AlarmName"]] = Alarm(params["AlarmName"], params)
        return {}

    def cloudwatch_DescribeAlarms(self, params: Params, real: Real) -> Answer:  # noqa: N802
        names = params.get("AlarmNames")
        return {
            "MetricAlarms": [
                {**alarm.described, "AlarmName": alarm.name, "StateValue": alarm.state}
                for alarm in self.alarms.values()
                if names is None or alarm.name in names
            ],
            "CompositeAlarms": [],
        }

    def cloudformation_CreateStack(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        self._adopt(params["StackName"])
        return answer

    def cloudformation_UpdateStack(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        self._adopt(params["StackName"])
        return answer

    def _adopt(self, stack_name: str) -> None:
        """Makes the policies and alarms of the stack that moto has passed over."""
        from moto.cloudformation.models import cloudformation_backends
        from moto.cloudformation.parsing import clean_json

        backend = cloudformation_backends["123456789012"]["us-east-1"]
        stack = next(s for s in backend.stacks.values() if s.name == stack_name)
        resources = stack.resource_map
        for resource in stack.template_dict["Resources"].values():
            if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup":
                self._complete_group(clean_json(dict(resource["Properties"]), resources))
        described = {
            name: clean_json(dict(resource["Properties"]), resources)
            for name, resource in stack.template_dict["Resources"].items()
            if resource["Type"] == "AWS::AutoScaling::ScalingPolicy"
        }
        arns = {name: self._policy(f"{stack_name}-{name}", policy) for name, policy in described.items()}
        for name, resource in stack.template_dict["Resources"].items():
            if resource["Type"] != "AWS::CloudWatch::Alarm":
                continue
            properties = _referring(resource["Properties"], arns)
            alarm = clean_json(properties, resources)
            self.alarms[alarm.get("AlarmName", f"{stack_name}-{name}")] = Alarm(
                alarm.get("AlarmName", f"{stack_name}-{name}"), alarm
            )

    def _complete_group(self, described: Any) -> None:
        """Hooks and metrics that a template names within the group."""
        name = described["AutoScalingGroupName"]
        for hook in described.get("LifecycleHookSpecificationList", []):
            self._backend().create_lifecycle_hook(
                name=hook["LifecycleHookName"],
                as_name=name,
                transition=hook["LifecycleTransition"],
                timeout=hook.get("HeartbeatTimeout", 3600),
                result=hook.get("DefaultResult", "ABANDON"),
            )
        for collected in described.get("MetricsCollection", []):
            self._backend().enable_metrics_collection(name, collected["Metrics"])

    def _policy(self, name: str, described: Any) -> str:
        arn = (
            f"arn:aws:autoscaling:us-east-1:123456789012:scalingPolicy:{uuid.uuid5(uuid.NAMESPACE_OID, name)}"
        )
        self.policies[arn] = {"PolicyName": name, **described}
        return arn

    # For DescribeInstances and TerminateInstances.

    def complete(self, instance: Answer) -> None:
        """Spot, and the launch template's metadata options."""
        for group in self._groups().values():
            if instance["InstanceId"] not in [m.instance.id for m in group.instance_states]:
                continue
            policy = group.mixed_instances_policy or {}
            share = policy.get("InstancesDistribution", {}).get("OnDemandPercentageAboveBaseCapacity", 100)
            base = policy.get("InstancesDistribution", {}).get("OnDemandBaseCapacity", 0)
            if policy and int(share) == 0 and int(base) == 0:
                instance["InstanceLifecycle"] = "spot"
            template = group.ec2_launch_template
            if template is not None:
                options = template.latest_version().data.get("MetadataOptions")
                if options:
                    instance["MetadataOptions"] = {
                        **instance.get("MetadataOptions", {}),
                        **_metadata(options),
                    }

    def forget(self, instances: list[str]) -> None:
        for instance in instances:
            self.waiting.pop(instance, None)

    def _held(self, params: Params) -> Waiting:
        held = self.waiting.get(params.get("InstanceId", ""))
        if (
            held is None
            or held.group != params["AutoScalingGroupName"]
            or held.hook != params["LifecycleHookName"]
        ):
            raise _refuse(
                "ValidationError",
                f"No active Lifecycle Action found with instance ID {params.get('InstanceId')}",
            )
        return held

    def _backend(self) -> Any:
        return scaling.autoscaling_backends["123456789012"]["us-east-1"]

    def _groups(self) -> dict[str, Any]:
        groups: dict[str, Any] = self._backend().autoscaling_groups
        return groups


def _spot(group: Any) -> bool:
    """`capacity` is that of spot; on-demand machines are always there."""
    mix = (group.mixed_instances_policy or {}).get("InstancesDistribution", {})
    return int(mix.get("OnDemandPercentageAboveBaseCapacity", 100)) < 100


def _only_note(group: Any, new_capacity: int | None) -> None:
    group.desired_capacity = group.min_size if new_capacity is None else new_capacity


def _only_forget(backend: Any, instance_ids: list[str]) -> None:
    for group in backend.autoscaling_groups.values():
        group.instance_states = [m for m in group.instance_states if m.instance.id not in instance_ids]


def _refuse(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "")


def _metadata(options: Any) -> dict[str, Any]:
    shown = dict(options)
    if "HttpPutResponseHopLimit" in shown:
        shown["HttpPutResponseHopLimit"] = int(shown["HttpPutResponseHopLimit"])
    return shown


def _metrics_of(group: Any) -> set[str]:
    """Names whose collection is on."""
    return {entry["Metric"] for entry in group.enabled_metrics}


def _computed(expression: str, known: dict[str, float | None]) -> float | None:
    """Sums and differences, and IF(x > 1, 1, x): what the kit's alarms use."""
    if capped := re.match(r"IF\((\w+) > 1, 1, \1\)", expression):
        value = known.get(capped[1])
        known = {**known, "capped": None if value is None else min(1.0, value)}
        expression = expression.replace(capped[0], "capped")
    total, sign = 0.0, 1.0
    for word in expression.replace("-", " - ").replace("+", " + ").split():
        if word in "+-":
            sign = 1.0 if word == "+" else -1.0
            continue
        value = known.get(word)
        if value is None:
            return None
        total += sign * value
    return total


def _referring(value: Any, arns: dict[str, str]) -> Any:
    """{"Ref": policy} is the policy's ARN."""
    if isinstance(value, dict):
        if set(value) == {"Ref"} and value["Ref"] in arns:
            return arns[value["Ref"]]
        return {key: _referring(each, arns) for key, each in value.items()}
    if isinstance(value, list):
        return [_referring(each, arns) for each in value]
    return value
