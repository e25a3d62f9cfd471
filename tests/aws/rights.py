"""The rights of a machine, asked at each of its calls to the strict double: its policy, by the evaluator of conditions.

    aws.authorize = Rights(aws, "r1").allow

What a call needs is taken from AWS's table of actions, resources and condition keys. A call that is not in it is
refused: the policy has no word for it either.
"""

from __future__ import annotations

from typing import Any

from policy_eval import Call, Resource, allows
from strict import REGION, StrictAws

from holdfast_aws.policy import instance_policy

OWNER = "123456789012"
ANY = Resource("*")


class Rights:
    def __init__(self, aws: StrictAws, run: str, policy: dict[str, Any] | None = None) -> None:
        self._aws = aws
        self._policy = policy or instance_policy(run)
        self.asked: set[str] = set()  # actions that were allowed

    def allow(self, service: str, operation: str, params: dict[str, Any]) -> bool:
        calls = self._calls(service, operation, params)
        allowed = bool(calls) and all(allows(self._policy, call) for call in calls)
        if allowed:
            self.asked |= {call.action for call in calls}
        return allowed

    def _calls(self, service: str, operation: str, params: dict[str, Any]) -> list[Call]:
        action = f"{service}:{operation}"
        if operation.startswith("Describe"):
            return [Call(action, [ANY])]
        if operation == "GetParameters":
            return [
                Call(
                    action, [Resource(f"arn:aws:ssm:{REGION}:{OWNER}:parameter{n}") for n in params["Names"]]
                )
            ]
        if service == "ssm":
            resource = Resource(
                f"arn:aws:ssm:{REGION}:{OWNER}:parameter{params.get('Name') or params.get('Path')}"
            )
            overwrites = {"ssm:Overwrite": str(params["Overwrite"]).lower()} if "Overwrite" in params else {}
            return [Call(action, [resource], None, overwrites)]
        if service == "cloudwatch":
            return [Call(action, [ANY], None, {"cloudwatch:namespace": params["Namespace"]})]
        if service == "autoscaling":
            return [Call(action, [self._group(params)])]
        if action in ("ec2:AttachVolume", "ec2:DetachVolume"):
            return [Call(action, [self._thing(params["VolumeId"]), self._thing(params["InstanceId"])])]
        if action == "ec2:DeleteSnapshot":
            return [Call(action, [self._thing(params["SnapshotId"])])]
        if action == "ec2:CreateTags":
            tags = {tag["Key"]: tag["Value"] for tag in params["Tags"]}
            return [Call(action, [self._thing(name) for name in params["Resources"]], tags)]
        if action in ("ec2:CreateVolume", "ec2:CreateSnapshot"):
            return self._births(action, operation, params)
        return []

    def _births(self, action: str, operation: str, params: dict[str, Any]) -> list[Call]:
        """Tags at birth are an action of their own."""
        new = Resource(self._arn("volume" if operation == "CreateVolume" else "snapshot", "new"))
        tags = {tag["Key"]: tag["Value"] for spec in params["TagSpecifications"] for tag in spec["Tags"]}
        source = params.get("SnapshotId") if operation == "CreateVolume" else params["VolumeId"]
        sources = [self._thing(source)] if source else []
        return [
            Call(action, [new, *sources], tags),
            Call("ec2:CreateTags", [new], tags, {"ec2:CreateAction": operation}),
        ]

    def _thing(self, name: str) -> Resource:
        kind = {"vol": "volume", "snap": "snapshot", "i": "instance"}[name.split("-")[0]]
        return Resource(self._arn(kind, name), dict(self._aws.ec2().tags.get(name, {})))

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:ec2:{REGION}:{'' if kind == 'snapshot' else OWNER}:{kind}/{name}"

    def _group(self, params: dict[str, Any]) -> Resource:
        groups = self._aws.groups._groups()
        name = params.get("AutoScalingGroupName") or next(
            name
            for name, group in groups.items()
            if params["InstanceId"] in [member.instance.id for member in group.instance_states]
        )
        arn = f"arn:aws:autoscaling:{REGION}:{OWNER}:autoScalingGroup:x:autoScalingGroupName/{name}"
        return Resource(arn, {tag["Key"]: tag["Value"] for tag in groups[name].tags})
