"""The instance's policy: who may do what to which thing, a row each. The tutorial's policy fails the table."""

from __future__ import annotations

from typing import Any

import pytest
from policy_eval import Call, Resource, allows

from holdfast_aws.policy import instance_policy

OURS = {"holdfast:run": "r1"}
OTHER = {"holdfast:run": "r10"}
POLICY = instance_policy("r1")

# What a well-known tutorial for spot training gives its instances.
TUTORIAL: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                "ec2:AttachVolume",
                "ec2:DeleteVolume",
                "ec2:DescribeVolumeStatus",
                "ec2:CancelSpotFleetRequests",
                "ec2:CreateTags",
                "ec2:DescribeVolumes",
                "ec2:CreateSnapshot",
                "ec2:DescribeSnapshots",
                "ec2:CreateVolume",
            ],
            "Resource": "*",
        }
    ],
}


def volume(tags: dict[str, str] | None = None) -> Resource:
    return Resource("arn:aws:ec2:us-east-1:111122223333:volume/vol-1", tags or {})


def snapshot(tags: dict[str, str] | None = None) -> Resource:
    return Resource("arn:aws:ec2:us-east-1::snapshot/snap-1", tags or {})


def instance(tags: dict[str, str] | None = None) -> Resource:
    return Resource("arn:aws:ec2:us-east-1:111122223333:instance/i-1", tags or {})


def group(tags: dict[str, str] | None = None) -> Resource:
    arn = "arn:aws:autoscaling:us-east-1:111122223333:autoScalingGroup:uuid:autoScalingGroupName/g"
    return Resource(arn, tags or {})


def parameter(name: str) -> Resource:
    return Resource(f"arn:aws:ssm:us-east-1:111122223333:parameter/{name}")


def register(name: str) -> Resource:
    return parameter(f"holdfast/{name}")


ANY = Resource("*")
YES, NO = True, False
AT_BIRTH = {"ec2:CreateAction": "CreateVolume"}
RETIRED = {"holdfast:retired-by-gen": "2"}
LEAD = {"holdfast:lead": "1"}

TABLE: list[tuple[str, bool, Call]] = [
    ("describes volumes", YES, Call("ec2:DescribeVolumes", [ANY])),
    ("describes instances", YES, Call("ec2:DescribeInstances", [ANY])),
    ("makes a volume of the run", YES, Call("ec2:CreateVolume", [volume()], OURS)),
    ("makes a volume without a tag", NO, Call("ec2:CreateVolume", [volume()])),
    ("makes a volume of another run", NO, Call("ec2:CreateVolume", [volume()], OTHER)),
    ("copies the run's snapshot", YES, Call("ec2:CreateVolume", [volume(), snapshot(OURS)], OURS)),
    ("copies another run's snapshot", NO, Call("ec2:CreateVolume", [volume(), snapshot(OTHER)], OURS)),
    ("copies a stranger's snapshot", NO, Call("ec2:CreateVolume", [volume(), snapshot()], OURS)),
    ("snapshots the run's volume", YES, Call("ec2:CreateSnapshot", [snapshot(), volume(OURS)], OURS)),
    ("snapshots without a tag", NO, Call("ec2:CreateSnapshot", [snapshot(), volume(OURS)])),
    ("snapshots another run's volume", NO, Call("ec2:CreateSnapshot", [snapshot(), volume(OTHER)], OURS)),
    ("snapshots a stranger's volume", NO, Call("ec2:CreateSnapshot", [snapshot(), volume()], OURS)),
    ("tags a volume at its birth", YES, Call("ec2:CreateTags", [volume()], OURS, AT_BIRTH)),
    ("tags a snapshot at its birth", YES, Call("ec2:CreateTags", [snapshot()], OURS, AT_BIRTH)),
    ("adopts a stranger's volume by a tag", NO, Call("ec2:CreateTags", [volume()], OURS)),
    ("adopts a stranger's snapshot by a tag", NO, Call("ec2:CreateTags", [snapshot()], OURS)),
    ("adopts an instance by a tag", NO, Call("ec2:CreateTags", [instance()], OURS, AT_BIRTH)),
    ("retires the run's volume", YES, Call("ec2:CreateTags", [volume(OURS)], RETIRED)),
    ("retires another run's volume", NO, Call("ec2:CreateTags", [volume(OTHER)], RETIRED)),
    ("gives the run's volume away", NO, Call("ec2:CreateTags", [volume(OURS)], OTHER)),
    ("retires and gives away at once", NO, Call("ec2:CreateTags", [volume(OURS)], {**RETIRED, **OTHER})),
    ("removes a tag", NO, Call("ec2:DeleteTags", [volume(OURS)], OURS)),
    ("attaches the run's volume", YES, Call("ec2:AttachVolume", [volume(OURS), instance(OURS)])),
    ("attaches another run's volume", NO, Call("ec2:AttachVolume", [volume(OTHER), instance(OURS)])),
    ("attaches a stranger's volume", NO, Call("ec2:AttachVolume", [volume(), instance(OURS)])),
    ("attaches to another run's machine", NO, Call("ec2:AttachVolume", [volume(OURS), instance(OTHER)])),
    ("detaches the run's volume", YES, Call("ec2:DetachVolume", [volume(OURS), instance(OURS)])),
    ("detaches a stranger's volume", NO, Call("ec2:DetachVolume", [volume(), instance()])),
    ("deletes the run's volume", NO, Call("ec2:DeleteVolume", [volume(OURS)])),
    ("deletes the run's snapshot", NO, Call("ec2:DeleteSnapshot", [snapshot(OURS)])),
    ("deletes a snapshot ahead of time", YES, Call("ec2:DeleteSnapshot", [snapshot({**OURS, **LEAD})])),
    ("deletes one of another run", NO, Call("ec2:DeleteSnapshot", [snapshot({**OTHER, **LEAD})])),
    ("makes a snapshot one that may be deleted", NO, Call("ec2:CreateTags", [snapshot(OURS)], LEAD)),
    (
        "lists its snapshots ahead of time anew",
        YES,
        Call("ssm:PutParameter", [register("r1/leads")], None, {"ssm:Overwrite": "true"}),
    ),
    (
        "lists those of another run",
        NO,
        Call("ssm:PutParameter", [register("r10/leads")], None, {"ssm:Overwrite": "true"}),
    ),
    ("grows the run's volume", NO, Call("ec2:ModifyVolume", [volume(OURS)])),
    ("terminates a machine of the run", NO, Call("ec2:TerminateInstances", [instance(OURS)])),
    ("starts machines", NO, Call("ec2:RunInstances", [instance(OURS)])),
    ("passes a role on", NO, Call("iam:PassRole", [Resource("arn:aws:iam::111122223333:role/admin")])),
    ("reads the registers", YES, Call("ssm:GetParametersByPath", [register("r1")])),
    ("reads those of a longer name", NO, Call("ssm:GetParametersByPath", [register("r10")])),
    ("fetches its package", YES, Call("ssm:GetParametersByPath", [parameter("holdfast-kit/r1")])),
    ("changes its package", NO, Call("ssm:PutParameter", [parameter("holdfast-kit/r1/00")])),
    ("writes a register once", YES, Call("ssm:PutParameter", [register("r1/gen/1/claim")])),
    (
        "writes it saying that it does not overwrite",
        YES,
        Call("ssm:PutParameter", [register("r1/gen/1/claim")], None, {"ssm:Overwrite": "false"}),
    ),
    (
        "overwrites a register",
        NO,
        Call("ssm:PutParameter", [register("r1/gen/1/claim")], None, {"ssm:Overwrite": "true"}),
    ),
    ("reads another run's registers", NO, Call("ssm:GetParametersByPath", [register("r10")])),
    ("writes another run's register", NO, Call("ssm:PutParameter", [register("r10/gen/1/claim")])),
    ("deletes a register", NO, Call("ssm:DeleteParameter", [register("r1/gen/1/claim")])),
    ("ends its own group", YES, Call("autoscaling:SetDesiredCapacity", [group(OURS)])),
    ("ends another run's group", NO, Call("autoscaling:SetDesiredCapacity", [group(OTHER)])),
    ("says that it is sick", YES, Call("autoscaling:SetInstanceHealth", [group(OURS)])),
    ("lets its hook go", YES, Call("autoscaling:CompleteLifecycleAction", [group(OURS)])),
    ("changes its group", NO, Call("autoscaling:UpdateAutoScalingGroup", [group(OURS)])),
    ("deletes its group", NO, Call("autoscaling:DeleteAutoScalingGroup", [group(OURS)])),
    (
        "counts in its own namespace",
        YES,
        Call("cloudwatch:PutMetricData", [ANY], None, {"cloudwatch:namespace": "Holdfast"}),
    ),
    (
        "counts in AWS's namespace",
        NO,
        Call("cloudwatch:PutMetricData", [ANY], None, {"cloudwatch:namespace": "AWS/EC2"}),
    ),
    ("pulls an image that nobody asked for", NO, Call("ecr:GetAuthorizationToken", [ANY])),
]


@pytest.mark.parametrize(
    ("name", "allowed", "call"), TABLE, ids=[name.replace(" ", "_") for name, _, _ in TABLE]
)
def test_row(name: str, allowed: bool, call: Call) -> None:
    assert allows(POLICY, call) is allowed


def test_table_is_long_enough() -> None:
    assert len(TABLE) >= 40


def test_tutorials_policy_fails_the_table() -> None:
    failed = {name for name, allowed, call in TABLE if allows(TUTORIAL, call) is not allowed}
    assert {
        "attaches a stranger's volume",
        "deletes the run's volume",
        "gives the run's volume away",
    } <= failed


@pytest.mark.parametrize("sid", [s["Sid"] for s in POLICY["Statement"]])
def test_table_notices_a_missing_statement(sid: str) -> None:
    shorter = {**POLICY, "Statement": [s for s in POLICY["Statement"] if s["Sid"] != sid]}
    assert any(allows(shorter, call) is not allowed for _, allowed, call in TABLE)


@pytest.mark.parametrize("sid", [s["Sid"] for s in POLICY["Statement"] if "Condition" in s])
def test_table_notices_a_missing_condition(sid: str) -> None:
    wider = [
        {k: v for k, v in s.items() if k != "Condition"} if s["Sid"] == sid else s
        for s in POLICY["Statement"]
    ]
    assert any(allows({**POLICY, "Statement": wider}, call) is not allowed for _, allowed, call in TABLE)


def test_ecr_only_when_asked() -> None:
    asked = instance_policy("r1", pull_from_ecr=True)
    assert allows(asked, Call("ecr:GetAuthorizationToken", [ANY]))
    assert not allows(
        asked, Call("ecr:PutImage", [Resource("arn:aws:ecr:us-east-1:111122223333:repository/x")])
    )
