"""What an instance of a run may do, and nothing more. The one source: the template embeds it as it is.

Absent on purpose: DeleteVolume, DeleteSnapshot, TerminateInstances, UpdateAutoScalingGroup, RunInstances,
PassRole. No instance can delete data, start machines, or touch what belongs to another run.
"""

from __future__ import annotations

from typing import Any

from holdfast_aws.cloud import RETIRED_TAG, RUN_TAG

Statement = dict[str, Any]

VOLUMES = "arn:aws:ec2:*:*:volume/*"
INSTANCES = "arn:aws:ec2:*:*:instance/*"
SNAPSHOTS = "arn:aws:ec2:*::snapshot/*"
GROUPS = "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*"
METRICS_NAMESPACE = "Holdfast"


def instance_policy(run: str, *, pull_from_ecr: bool = False) -> dict[str, Any]:
    """The policy of the run's role. `pull_from_ecr`: the image lies in a private registry of the account."""
    asked = {"StringEquals": {f"aws:RequestTag/{RUN_TAG}": run}}  # a tag that the call itself sets
    ours = {"StringEquals": {f"aws:ResourceTag/{RUN_TAG}": run}}  # a tag that the thing has already
    registers = f"arn:aws:ssm:*:*:parameter/holdfast/{run}"
    kit = f"arn:aws:ssm:*:*:parameter/holdfast-kit/{run}"
    statements = [
        _allow(
            "Look",
            [
                "ec2:DescribeVolumes",
                "ec2:DescribeSnapshots",
                "ec2:DescribeInstances",
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLifecycleHooks",
            ],
            "*",
        ),
        _allow("MakeVolume", "ec2:CreateVolume", VOLUMES, asked),
        _allow("FromOurSnapshot", "ec2:CreateVolume", SNAPSHOTS, ours),
        _allow("Snap", "ec2:CreateSnapshot", SNAPSHOTS, asked),
        _allow("SnapSource", "ec2:CreateSnapshot", VOLUMES, ours),
        _allow(
            "TagAtBirth",
            "ec2:CreateTags",
            [VOLUMES, SNAPSHOTS],
            {"StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot"]}},
        ),
        _allow(
            "Retire",
            "ec2:CreateTags",
            VOLUMES,
            {**ours, "ForAllValues:StringEquals": {"aws:TagKeys": [RETIRED_TAG]}},
        ),
        _allow("Plug", ["ec2:AttachVolume", "ec2:DetachVolume"], [VOLUMES, INSTANCES], ours),
        # Not "RUN*": that would be the registers of RUN2, too.
        _allow("ReadRegister", "ssm:GetParametersByPath", [registers, f"{registers}/*"]),
        _allow("ReadKit", "ssm:GetParametersByPath", [kit, f"{kit}/*"]),
        _allow(
            "WriteOnce",
            "ssm:PutParameter",
            f"{registers}/*",
            {"StringNotEquals": {"ssm:Overwrite": "true"}},
        ),
        _allow(
            "End",
            [
                "autoscaling:SetDesiredCapacity",
                "autoscaling:SetInstanceHealth",
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:RecordLifecycleActionHeartbeat",
            ],
            GROUPS,
            ours,
        ),
        _allow(
            "Count",
            "cloudwatch:PutMetricData",
            "*",
            {"StringEquals": {"cloudwatch:namespace": METRICS_NAMESPACE}},
        ),
    ]
    if pull_from_ecr:
        pull = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"]
        statements += [
            _allow("EcrLogin", "ecr:GetAuthorizationToken", "*"),
            _allow("EcrPull", pull, "arn:aws:ecr:*:*:repository/*"),
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(
    sid: str, action: str | list[str], resource: str | list[str], condition: Statement | None = None
) -> Statement:
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource}
    if condition:
        statement["Condition"] = condition
    return statement
