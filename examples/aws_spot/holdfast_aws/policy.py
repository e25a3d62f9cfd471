"""What an instance of a run may do, and nothing more. The one source: the template embeds it as it is.

With `s3` the run has no volume, and the machine no right to any. What it may do in the bucket is what the program
rclone asks S3 for when `holdfast mirror` copies, reads back, claims and retains (tests/aws/test_home_in_s3.py has the
list, call by call), each below the run's own place. It may delete there, as retention must; it may not delete what
is not a checkpoint or a claim.

Absent on purpose: DeleteVolume, TerminateInstances, UpdateAutoScalingGroup, RunInstances, PassRole. No instance can
delete a volume, or a snapshot but those taken ahead of time, start machines, or touch what belongs to another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_aws.cloud import LEAD_TAG, RETIRED_TAG, RUN_TAG

Statement = dict[str, Any]

VOLUMES = "arn:aws:ec2:*:*:volume/*"
INSTANCES = "arn:aws:ec2:*:*:instance/*"
SNAPSHOTS = "arn:aws:ec2:*::snapshot/*"
GROUPS = "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*"
METRICS_NAMESPACE = "Holdfast"
LOOK_AT_VOLUMES = ("ec2:DescribeVolumes", "ec2:DescribeSnapshots", "ec2:DescribeInstances")
ACL = "bucket-owner-full-control"


def instance_policy(
    run: str,
    *,
    pull_from_ecr: bool = False,
    s3: str = "",
    names: Sequence[str] = ("run",),
    standby: bool = False,
) -> dict[str, Any]:
    """The policy of the run's role.

    `pull_from_ecr`: the image lies in a private registry of the account. `s3`: BUCKET/PREFIX/RUN, with a place below
    for each of `names`, which may have wildcards. `standby`: a machine may hand over, and leave its group.
    """
    registers = f"arn:aws:ssm:*:*:parameter/holdfast/{run}"
    kit = f"arn:aws:ssm:*:*:parameter/holdfast-kit/{run}"
    ours = {"StringEquals": {f"aws:ResourceTag/{RUN_TAG}": run}}  # a tag that the thing has already
    look = ["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances"]
    statements = [
        _allow("Look", [*([] if s3 else LOOK_AT_VOLUMES), *look, "autoscaling:DescribeLifecycleHooks"], "*"),
        *(_home(s3, names) if s3 else _volume(run)),
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
    if standby:
        # At most one more: the group's MaxSize says so, and no machine can change that.
        statements += [
            _allow("HandOver", "autoscaling:TerminateInstanceInAutoScalingGroup", GROUPS, ours),
            _allow("ReadCrew", "ssm:GetParameters", f"{registers}/crew/*"),
        ]
    if pull_from_ecr:
        pull = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"]
        statements += [
            _allow("EcrLogin", "ecr:GetAuthorizationToken", "*"),
            _allow("EcrPull", pull, "arn:aws:ecr:*:*:repository/*"),
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def _home(s3: str, names: Sequence[str]) -> list[Statement]:
    bucket, _, prefix = s3.partition("/")
    places = [f"arn:aws:s3:::{bucket}/{prefix}/{name}" for name in names]
    inside = [pattern for name in names for pattern in (f"{prefix}/{name}", f"{prefix}/{name}/*")]
    files = [f"{place}/{kind}" for place in places for kind in ("step-*", "attempts/*")]
    return [
        # IfExists: a question for one object names no prefix. Without this right S3 says 403 of an object that does not
        # exist, and not 404, which is what a first start waits for.
        _allow(
            "ListHome",
            "s3:ListBucket",
            f"arn:aws:s3:::{bucket}",
            {"StringLikeIfExists": {"s3:prefix": inside}},
        ),
        # Of a bucket with versions rclone asks by version what it has just written in parts.
        _allow(
            "ReadHome",
            ["s3:GetObject", "s3:GetObjectVersion"],
            [*places, *(f"{place}/*" for place in places)],
        ),
        _allow("WriteHome", ["s3:PutObject", "s3:AbortMultipartUpload"], files),
        # rclone up to 1.60 always names an ACL; this one is accepted by buckets that have none, and gives nothing away.
        _allow("OwnHome", "s3:PutObjectAcl", files, {"StringEquals": {"s3:x-amz-acl": ACL}}),
        _allow("RetainHome", "s3:DeleteObject", files),
    ]


def _volume(run: str) -> list[Statement]:
    asked = {"StringEquals": {f"aws:RequestTag/{RUN_TAG}": run}}  # a tag that the call itself sets
    ours = {"StringEquals": {f"aws:ResourceTag/{RUN_TAG}": run}}  # a tag that the thing has already
    return [
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
        # A snapshot gets this tag at its birth, or never: no machine may tag one that exists.
        _allow(
            "DropLead",
            "ec2:DeleteSnapshot",
            SNAPSHOTS,
            {"StringEquals": {**ours["StringEquals"], f"aws:ResourceTag/{LEAD_TAG}": "1"}},
        ),
        _allow("ListLeads", "ssm:PutParameter", f"arn:aws:ssm:*:*:parameter/holdfast/{run}/leads"),
        _allow("Plug", ["ec2:AttachVolume", "ec2:DetachVolume"], [VOLUMES, INSTANCES], ours),
    ]


def _allow(
    sid: str, action: str | list[str], resource: str | list[str], condition: Statement | None = None
) -> Statement:
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource}
    if condition:
        statement["Condition"] = condition
    return statement
