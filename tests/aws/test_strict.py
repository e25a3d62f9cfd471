"""The double is strict where moto is too kind: the sixteen places of the kit page's §7.1, in its order."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from fake_cloud import Times
from policy_eval import Call, Resource, allows
from strict import REGION, StrictAws
from virtual import VirtualClock

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


@pytest.fixture
def aws() -> Iterator[StrictAws]:
    with StrictAws(VirtualClock(), Times(create=3, attach=2, detach=2, lost=360, snapshot=60)) as strict:
        yield strict


@functools.lru_cache
def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION)  # type: ignore[call-overload]


def pause(aws: StrictAws, seconds: float) -> None:
    aws.clock.sleep(seconds)


def machine(zone: str = A) -> str:
    made = client("ec2").run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        InstanceType="t3.micro",
        Placement={"AvailabilityZone": zone},
    )
    name: str = made["Instances"][0]["InstanceId"]
    return name


def volume(aws: StrictAws, zone: str = A, **more: Any) -> str:
    made = client("ec2").create_volume(AvailabilityZone=zone, Size=8, VolumeType="gp3", **more)
    pause(aws, 4)
    name: str = made["VolumeId"]
    return name


def state(volume_id: str) -> tuple[str, str | None]:
    shown = client("ec2").describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    attached = shown["Attachments"]
    return shown["State"], attached[0]["State"] if attached else None


def attach(volume_id: str, instance: str, device: str = "/dev/sdf") -> None:
    client("ec2").attach_volume(VolumeId=volume_id, InstanceId=instance, Device=device)


def refused(code: str) -> Any:
    return pytest.raises(ClientError, match=rf"\({code}\)")


def group(aws: StrictAws, zones: tuple[str, ...] = (A, B), hook: bool = False, **more: Any) -> str:
    ec2, scaling = client("ec2"), client("autoscaling")
    ec2.create_launch_template(
        LaunchTemplateName="holdfast",
        LaunchTemplateData={
            "ImageId": "ami-12345678",
            "InstanceType": "g5.xlarge",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        },
    )
    subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="spot",
        MinSize=0,
        MaxSize=1,
        DesiredCapacity=1,
        VPCZoneIdentifier=",".join(subnets[zone] for zone in zones),
        MixedInstancesPolicy={
            "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0, "OnDemandBaseCapacity": 0},
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "holdfast", "Version": "$Latest"},
                "Overrides": [{"InstanceType": "g5.xlarge"}, {"InstanceType": "g4dn.xlarge"}],
            },
        },
        **more,
    )
    if hook:
        scaling.put_lifecycle_hook(
            AutoScalingGroupName="spot",
            LifecycleHookName="holdfast-terminating",
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=300,
        )
    pause(aws, 120)
    return "spot"


def members(name: str = "spot") -> list[dict[str, Any]]:
    found = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    instances: list[dict[str, Any]] = found["AutoScalingGroups"][0]["Instances"]
    return instances


def test_01_no_attachment_across_zones(aws: StrictAws) -> None:
    with refused("InvalidVolume.ZoneMismatch"):
        attach(volume(aws, A), machine(B))


def test_02_an_attached_volume_is_not_stolen(aws: StrictAws) -> None:
    name, first = volume(aws), machine()
    attach(name, first)
    with refused("VolumeInUse"):
        attach(name, machine())
    assert (
        client("ec2").describe_volumes(VolumeIds=[name])["Volumes"][0]["Attachments"][0]["InstanceId"]
        == first
    )


def test_03_the_holder_can_be_terminated(aws: StrictAws) -> None:
    name, holder = volume(aws), machine()
    attach(name, holder)
    client("ec2").terminate_instances(InstanceIds=[holder])
    assert state(name)[0] == "in-use"


def test_04_no_attachment_to_a_terminated_machine(aws: StrictAws) -> None:
    holder = machine()
    client("ec2").terminate_instances(InstanceIds=[holder])
    with refused("IncorrectState"):
        attach(volume(aws), holder)


def test_05_a_zone_must_exist(aws: StrictAws) -> None:
    with refused("InvalidParameterValue"):
        client("ec2").create_volume(AvailabilityZone="us-west-2z", Size=8)


def test_06_gp3_has_limits_and_defaults(aws: StrictAws) -> None:
    for figures in ({"Throughput": 99999}, {"Throughput": 100}, {"Iops": 2000}, {"Iops": 99999}):
        with refused("InvalidParameterValue"):
            volume(aws, **figures)
    with refused("InvalidParameterCombination"):
        volume(aws, Iops=3000, Throughput=1000)
    name = volume(aws)
    shown = client("ec2").describe_volumes(VolumeIds=[name])["Volumes"][0]
    assert (shown["Iops"], shown["Throughput"]) == (3000, 125)


def test_07_a_token_makes_one_volume(aws: StrictAws) -> None:
    first = volume(aws, ClientToken="r1-g1")
    assert volume(aws, ClientToken="r1-g1") == first
    with refused("IdempotentParameterMismatch"):
        volume(aws, B, ClientToken="r1-g1")


def test_08_volumes_and_snapshots_need_time(aws: StrictAws) -> None:
    ec2 = client("ec2")
    name = ec2.create_volume(AvailabilityZone=A, Size=8)["VolumeId"]
    assert state(name) == ("creating", None)
    with refused("IncorrectState"):
        attach(name, machine())
    pause(aws, 4)
    assert state(name) == ("available", None)
    holder = machine()
    attach(name, holder)
    assert state(name) == ("in-use", "attaching")
    pause(aws, 3)
    assert state(name) == ("in-use", "attached")
    ec2.detach_volume(VolumeId=name)
    assert state(name) == ("in-use", "detaching")
    pause(aws, 3)
    assert state(name) == ("available", None)
    snapshot = ec2.create_snapshot(VolumeId=name)["SnapshotId"]
    with refused("IncorrectState"):
        ec2.create_volume(AvailabilityZone=B, SnapshotId=snapshot)
    assert not ec2.describe_snapshots(
        OwnerIds=["self"], Filters=[{"Name": "status", "Values": ["completed"]}]
    )["Snapshots"]
    pause(aws, 61)
    assert ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["State"] == "completed"
    ec2.create_volume(AvailabilityZone=B, SnapshotId=snapshot)


def test_08_snapshots_can_fail(aws: StrictAws) -> None:
    aws.snapshot_fails = 1
    snapshot = client("ec2").create_snapshot(VolumeId=volume(aws))["SnapshotId"]
    pause(aws, 61)
    assert client("ec2").describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["State"] == "error"


def test_09_a_lost_machine_frees_its_volumes_late(aws: StrictAws) -> None:
    name, holder = volume(aws), machine()
    attach(name, holder)
    client("ec2").terminate_instances(InstanceIds=[holder])
    pause(aws, 300)
    assert state(name)[0] == "in-use"
    with refused("VolumeInUse"):
        attach(name, machine())
    pause(aws, 61)
    attach(name, machine())


def test_10_spot_machines_of_a_group_say_so(aws: StrictAws) -> None:
    group(aws)
    (member,) = members()
    shown = client("ec2").describe_instances(InstanceIds=[member["InstanceId"]])["Reservations"][0][
        "Instances"
    ][0]
    assert shown["InstanceLifecycle"] == "spot"
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown["MetadataOptions"]["HttpPutResponseHopLimit"] == 2


def test_10_a_share_that_is_left_out_buys_on_demand(aws: StrictAws) -> None:
    name = group(aws)
    aws.groups._groups()[name].mixed_instances_policy["InstancesDistribution"] = {}
    (member,) = members()
    shown = client("ec2").describe_instances(InstanceIds=[member["InstanceId"]])["Reservations"][0][
        "Instances"
    ][0]
    assert "InstanceLifecycle" not in shown


def test_11_an_unhealthy_machine_is_replaced(aws: StrictAws) -> None:
    group(aws)
    (sick,) = members()
    client("autoscaling").set_instance_health(InstanceId=sick["InstanceId"], HealthStatus="Unhealthy")
    pause(aws, 120)
    (new,) = members()
    assert new["InstanceId"] != sick["InstanceId"]
    assert aws.instance(sick["InstanceId"])[0] == "terminated"


def test_11_a_group_launches_only_after_a_while(aws: StrictAws) -> None:
    group(aws)
    client("ec2").terminate_instances(InstanceIds=[members()[0]["InstanceId"]])
    assert not members()
    pause(aws, 40)
    assert len(members()) == 1


def test_12_a_hook_holds_the_machine(aws: StrictAws) -> None:
    group(aws, hook=True)
    scaling = client("autoscaling")
    (member,) = members()
    name = member["InstanceId"]
    scaling.set_desired_capacity(AutoScalingGroupName="spot", DesiredCapacity=0)
    assert members()[0]["LifecycleState"] == "Terminating:Wait"
    assert aws.instance(name)[0] == "running"
    pause(aws, 200)
    held = {"AutoScalingGroupName": "spot", "LifecycleHookName": "holdfast-terminating", "InstanceId": name}
    scaling.record_lifecycle_action_heartbeat(**held)
    pause(aws, 200)
    assert aws.instance(name)[0] == "running"
    scaling.complete_lifecycle_action(**held, LifecycleActionResult="CONTINUE")
    assert aws.instance(name)[0] == "terminated"
    with refused("ValidationError"):
        scaling.complete_lifecycle_action(**held, LifecycleActionResult="CONTINUE")


def test_12_a_hook_ends_by_itself(aws: StrictAws) -> None:
    group(aws, hook=True)
    name = members()[0]["InstanceId"]
    client("autoscaling").set_desired_capacity(AutoScalingGroupName="spot", DesiredCapacity=0)
    pause(aws, 301)
    assert not members()
    assert aws.instance(name)[0] == "terminated"


def test_13_a_member_can_be_terminated_by_its_group(aws: StrictAws) -> None:
    group(aws)
    name = members()[0]["InstanceId"]
    client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=name, ShouldDecrementDesiredCapacity=True
    )
    pause(aws, 120)
    assert not members()
    assert aws.instance(name)[0] == "terminated"


def test_13_calls_that_moto_cannot_answer(aws: StrictAws) -> None:
    ec2, name = client("ec2"), volume(aws)
    snapshot = ec2.create_snapshot(VolumeId=name)["SnapshotId"]
    made = ec2.enable_fast_snapshot_restores(AvailabilityZones=[B], SourceSnapshotIds=[snapshot])
    assert made["Successful"][0]["State"] == "enabling"
    assert ec2.describe_volume_status(VolumeIds=[name])["VolumeStatuses"][0]["VolumeStatus"]["Status"] == "ok"
    with refused("IncorrectState"):
        ec2.detach_volume(VolumeId=name)
    scores = ec2.get_spot_placement_scores(
        TargetCapacity=1, InstanceTypes=["g5.xlarge"], RegionNames=[REGION]
    )
    assert scores["SpotPlacementScores"][0]["Region"] == REGION
    client("cloudwatch").put_metric_alarm(
        AlarmName="quiet",
        MetricName="GroupInServiceInstances",
        Namespace="AWS/AutoScaling",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        Statistic="Minimum",
        ComparisonOperator="LessThanThreshold",
    )
    assert client("cloudwatch").describe_alarms()["MetricAlarms"][0]["AlarmName"] == "quiet"


def test_14_a_group_tells_what_it_did(aws: StrictAws) -> None:
    aws.groups.capacity = {A: 0, B: 0}
    group(aws)
    scaling = client("autoscaling")
    told = scaling.describe_scaling_activities(AutoScalingGroupName="spot")["Activities"]
    assert {activity["StatusCode"] for activity in told} == {"Failed"}
    assert told[0]["StatusMessage"] == "UnfulfillableCapacity"
    assert not members()
    aws.groups.capacity = {A: 0, B: 1}
    pause(aws, 120)
    (member,) = members()
    assert member["AvailabilityZone"] == B
    told = scaling.describe_scaling_activities(AutoScalingGroupName="spot")["Activities"]
    assert told[0]["StatusCode"] == "Successful"


def test_14_a_quota_of_machines_holds(aws: StrictAws) -> None:
    aws.quotas.instances = 0
    group(aws)
    told = client("autoscaling").describe_scaling_activities(AutoScalingGroupName="spot")["Activities"]
    assert told[0]["StatusMessage"] == "MaxSpotInstanceCountExceeded"


FALLBACK: dict[str, Any] = {
    "Resources": {
        "Buy": {
            "Type": "AWS::AutoScaling::ScalingPolicy",
            "Properties": {
                "AutoScalingGroupName": "demand",
                "PolicyType": "StepScaling",
                "AdjustmentType": "ExactCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        },
        "NoSpot": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "EvaluationPeriods": 5,
                "Threshold": 1,
                "TreatMissingData": "notBreaching",
                "AlarmActions": [{"Ref": "Buy"}],
                "Metrics": [
                    {"Id": "gap", "Expression": "desired - there", "ReturnData": True},
                    *(
                        {
                            "Id": name,
                            "ReturnData": False,
                            "MetricStat": {
                                "Metric": {
                                    "Namespace": "AWS/AutoScaling",
                                    "MetricName": metric,
                                    "Dimensions": [{"Name": "AutoScalingGroupName", "Value": "spot"}],
                                },
                                "Period": 60,
                                "Stat": "Average",
                            },
                        }
                        for name, metric in (
                            ("desired", "GroupDesiredCapacity"),
                            ("there", "GroupInServiceInstances"),
                        )
                    ),
                ],
            },
        },
    }
}


@pytest.mark.parametrize("collected", [True, False])
def test_15_alarms_and_policies_of_a_stack_act(aws: StrictAws, collected: bool) -> None:
    aws.groups.capacity = {A: 0, B: 0}
    group(aws)
    scaling = client("autoscaling")
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="demand",
        MinSize=0,
        MaxSize=1,
        DesiredCapacity=0,
        AvailabilityZones=[C],
        LaunchTemplate={"LaunchTemplateName": "holdfast", "Version": "$Latest"},
    )
    if collected:
        scaling.enable_metrics_collection(
            AutoScalingGroupName="spot",
            Granularity="1Minute",
            Metrics=["GroupDesiredCapacity", "GroupInServiceInstances"],
        )
    client("cloudformation").create_stack(StackName="fallback", TemplateBody=json.dumps(FALLBACK))
    (alarm,) = client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert alarm["StateValue"] == "INSUFFICIENT_DATA"
    pause(aws, 200)
    assert not members("demand")
    pause(aws, 300)
    assert len(members("demand")) == (1 if collected else 0)
    (alarm,) = client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert alarm["StateValue"] == ("ALARM" if collected else "OK")


def test_16_a_policy_with_conditions_decides(aws: StrictAws) -> None:
    policy = {
        "Statement": [
            {"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"},
            {
                "Effect": "Allow",
                "Action": "ec2:CreateVolume",
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:RequestTag/holdfast:run": "r1"}},
            },
        ]
    }

    def authorize(service: str, operation: str, params: dict[str, Any]) -> bool:
        tags = {t["Key"]: t["Value"] for s in params.get("TagSpecifications", []) for t in s["Tags"]}
        return allows(policy, Call(f"{service}:{operation}", [Resource("arn:aws:ec2:::volume/*")], tags))

    aws.authorize = authorize
    specification = [{"ResourceType": "volume", "Tags": [{"Key": "holdfast:run", "Value": "r1"}]}]
    name = volume(aws, TagSpecifications=specification)
    with refused("UnauthorizedOperation"):
        volume(aws)
    with refused("UnauthorizedOperation"):
        client("ec2").delete_volume(VolumeId=name)
    with refused("AccessDenied"):
        client("ssm").put_parameter(Name="/a", Value="b", Type="String")


def test_16_fleets(aws: StrictAws) -> None:
    group(aws)
    ec2 = client("ec2")
    made = ec2.create_fleet(
        Type="maintain",
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
        LaunchTemplateConfigs=[
            {"LaunchTemplateSpecification": {"LaunchTemplateName": "holdfast", "Version": "1"}}
        ],
    )
    fleet = made["FleetId"]
    tagged = ec2.describe_instances(Filters=[{"Name": "tag:aws:ec2:fleet-id", "Values": [fleet]}])
    assert len(tagged["Reservations"]) == 1
    ec2.modify_fleet(FleetId=fleet, TargetCapacitySpecification={"TotalTargetCapacity": 0})
    for _ in range(2):
        done = ec2.delete_fleets(FleetIds=[fleet], TerminateInstances=True)
        assert done["SuccessfulFleetDeletions"][0]["FleetId"] == fleet
    with refused("InvalidFleetId.NotFound"):
        ec2.modify_fleet(FleetId=fleet, TargetCapacitySpecification={"TotalTargetCapacity": 1})


def test_what_was_made_is_visible_late(aws: StrictAws) -> None:
    aws.times.visible = 5
    ec2 = client("ec2")
    name = ec2.create_volume(AvailabilityZone=A, Size=8)["VolumeId"]
    with refused("InvalidVolume.NotFound"):
        ec2.describe_volumes(VolumeIds=[name])
    assert not [v for v in ec2.describe_volumes()["Volumes"] if v["VolumeId"] == name]
    pause(aws, 6)
    assert state(name)[0] == "available"
    snapshot = ec2.create_snapshot(VolumeId=name)["SnapshotId"]
    with refused("InvalidSnapshot.NotFound"):
        ec2.describe_snapshots(SnapshotIds=[snapshot])


def test_quotas_and_throttling(aws: StrictAws) -> None:
    aws.quotas.volumes = 1
    volume(aws)
    with refused("VolumeLimitExceeded"):
        volume(aws)
    aws.quotas = type(aws.quotas)(attachments=0)
    with refused("AttachmentLimitExceeded"):
        attach(volume(aws), machine())
    aws.throttle = lambda operation: "RequestLimitExceeded" if operation == "DescribeVolumes" else None
    with refused("RequestLimitExceeded"):
        client("ec2").describe_volumes()


def test_an_attached_volume_is_not_deleted(aws: StrictAws) -> None:
    name = volume(aws)
    attach(name, machine())
    with refused("VolumeInUse"):
        client("ec2").delete_volume(VolumeId=name)


def test_a_parameter_is_created_once(aws: StrictAws) -> None:
    ssm = client("ssm")
    ssm.put_parameter(Name="/holdfast/r1/gen/1/claim", Value="i-1", Type="String")
    with refused("ParameterAlreadyExists"):
        ssm.put_parameter(Name="/holdfast/r1/gen/1/claim", Value="i-2", Type="String")


def test_an_update_keeps_what_it_does_not_name(aws: StrictAws) -> None:
    """With moto alone the mix is gone, and a spot group launches where spot has nothing."""
    aws.groups.capacity = {A: 0, B: 0}
    group(aws)
    scaling = client("autoscaling")
    (before,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    scaling.update_auto_scaling_group(AutoScalingGroupName="spot", MaxSize=2)
    (after,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert after["MixedInstancesPolicy"] == before["MixedInstancesPolicy"]
    pause(aws, 300)
    assert not members()
