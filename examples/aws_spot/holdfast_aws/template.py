"""The one CloudFormation template of a run. It owns machines and rights, never data: deleting it keeps the checkpoints.

    spot group        0 or 1 machine (or --nodes), any type and zone of the list, no maximum price
    on-demand group   0 or 1, with --fallback-minutes: an alarm fills it when spot has had none for so long,
                      another empties it when spot has had one for 10 minutes
    launch template, security group, role, and the package that machines fetch, in parameters

No group has a DesiredCapacity here: an update must not start a run that is complete. `hf-aws up` sets it.
"""

from __future__ import annotations

import base64
from typing import Any

from holdfast_aws.cloud import RUN_TAG
from holdfast_aws.plan import LaunchPlan, on_demand_group, spot_group, stack_of
from holdfast_aws.standby import NEVER
from holdfast_aws.user_data import kit, user_data

Json = dict[str, Any]

HOOK = "holdfast-terminating"
HOOK_SECONDS = 300  # the last commit, unmount and detach must fit; a spot reclaim does not wait for it
SPOT_IS_BACK_MINUTES = 10
PARAMETER_LIMIT = 4096  # characters of a standard parameter, which costs nothing


def template(plan: LaunchPlan) -> Json:
    resources: Json = {
        "Role": _role(plan),
        "Profile": {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [_ref("Role")]}},
        "Wall": _wall(plan),
        "Machine": _machine(plan),
        "Spot": _group(plan, spot_group(plan.run), on_demand_percentage=0),
    }
    resources.update(_kit(plan))
    if plan.nodes > 1:
        resources.update(_one_network(plan))
    if plan.fallback_minutes:
        resources["OnDemand"] = _group(plan, on_demand_group(plan.run), on_demand_percentage=100)
        resources.update(_fallback(plan))
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Holdfast: the machines of run {plan.run}. Deleting this stack keeps the run's checkpoints.",
        "Parameters": _parameters(plan),
        "Resources": resources,
        # `hf-aws move` opens one of them, and later all again.
        "Outputs": {"Subnets": {"Value": {"Fn::Join": [",", _ref("Subnets")]}}},
    }


def _ref(name: str) -> Json:
    return {"Ref": name}


def _parameters(plan: LaunchPlan) -> Json:
    image_type = "AWS::EC2::Image::Id"
    if not plan.machine_image.startswith("ami-"):
        image_type = "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    parameters: Json = {
        "Vpc": {"Type": "AWS::EC2::VPC::Id", "Description": "The network of the subnets"},
        "Subnets": {
            "Type": "List<AWS::EC2::Subnet::Id>",
            "Description": "One a zone; the run follows capacity across them",
        },
        "Image": {"Type": image_type, "Default": plan.machine_image, "Description": "With the GPU's driver"},
    }
    if plan.vpc:
        parameters["Vpc"]["Default"] = plan.vpc
    if plan.subnets:
        parameters["Subnets"]["Default"] = ",".join(plan.subnets)
    return parameters


def _role(plan: LaunchPlan) -> Json:
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    properties: Json = {
        "Description": f"A machine of Holdfast run {plan.run}",
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [{"PolicyName": "holdfast", "PolicyDocument": plan.policy}],
        "Tags": [_tag(RUN_TAG, plan.run)],
    }
    if plan.remote_shell:
        properties["ManagedPolicyArns"] = [
            {"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"}
        ]
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _kit(plan: LaunchPlan) -> Json:
    text = base64.b64encode(kit(plan)).decode()
    parts = [text[at : at + PARAMETER_LIMIT] for at in range(0, len(text), PARAMETER_LIMIT)]
    return {
        f"Kit{number:02}": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {
                "Name": f"/holdfast-kit/{plan.run}/{number:02}",
                "Type": "String",
                "Value": part,
                "Description": "The package holdfast_aws",
            },
        }
        for number, part in enumerate(parts)
    }


def _wall(plan: LaunchPlan) -> Json:
    """Nothing comes in. Out go package lists and HTTPS; with several nodes also the file system's protocols."""
    out = [(80, 80, "package lists"), (443, 443, "AWS, registries")]
    if plan.shared:
        out += [(988, 988, "FSx for Lustre"), (1018, 1023, "FSx for Lustre"), (2049, 2049, "NFS")]
    rules = [
        {"IpProtocol": "tcp", "FromPort": low, "ToPort": high, "CidrIp": "0.0.0.0/0", "Description": what}
        for low, high, what in out
    ]
    return {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {
            "GroupDescription": f"Holdfast run {plan.run}: nothing comes in",
            "VpcId": _ref("Vpc"),
            "SecurityGroupEgress": rules,
            "Tags": [_tag(RUN_TAG, plan.run)],
        },
    }


def _one_network(plan: LaunchPlan) -> Json:
    """EFA needs all protocols among the nodes, both ways, and they must stand close together."""
    wall = {"Fn::GetAtt": ["Wall", "GroupId"]}
    among = {"GroupId": wall, "IpProtocol": "-1", "Description": "EFA and rendezvous, among the nodes"}
    return {
        "FromNodes": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**among, "SourceSecurityGroupId": wall},
        },
        "ToNodes": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**among, "DestinationSecurityGroupId": wall},
        },
        "Close": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}},
    }


def _machine(plan: LaunchPlan) -> Json:
    data: Json = {
        "ImageId": _ref("Image"),
        "IamInstanceProfile": {"Arn": {"Fn::GetAtt": ["Profile", "Arn"]}},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 2,  # a container over a bridge is the second hop
            "InstanceMetadataTags": "enabled",
        },
        # The root disk only. The run's volume must outlive the machine, so it is never part of a launch.
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": plan.root_gib,
                    "DeleteOnTermination": True,
                    "Encrypted": True,
                },
            }
        ],
        # Instances only: a root disk with the run's tag would look like the run's volume.
        "TagSpecifications": [
            {
                "ResourceType": "instance",
                "Tags": [_tag(RUN_TAG, plan.run), _tag("Name", stack_of(plan.run))],
            }
        ],
        "UserData": user_data(plan),
    }
    if plan.efa:
        # The first interface has the address; those with EFA have none.
        data["NetworkInterfaces"] = [
            _interface(0, 0, "interface"),
            *(_interface(card, 1 if card == 0 else 0, "efa-only") for card in plan.efa),
        ]
    else:
        data["SecurityGroupIds"] = [{"Fn::GetAtt": ["Wall", "GroupId"]}]
    if plan.nodes > 1:
        data["Placement"] = {"GroupName": _ref("Close")}
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}


def _interface(card: int, device: int, kind: str) -> Json:
    return {
        "InterfaceType": kind,
        "NetworkCardIndex": card,
        "DeviceIndex": device,
        "Groups": [{"Fn::GetAtt": ["Wall", "GroupId"]}],
        "DeleteOnTermination": True,
    }


def most_of(plan: LaunchPlan, *, spot: bool) -> int:
    """Machines of a group. On-demand machines hear no notice, so none stands by there."""
    return plan.nodes + (1 if plan.rebalance or (spot and plan.stands_by != NEVER) else 0)


def _group(plan: LaunchPlan, name: str, *, on_demand_percentage: int) -> Json:
    second = plan.stands_by != NEVER and on_demand_percentage == 0
    launch = {
        "LaunchTemplateId": _ref("Machine"),
        "Version": {"Fn::GetAtt": ["Machine", "LatestVersionNumber"]},
    }
    return {
        "Type": "AWS::AutoScaling::AutoScalingGroup",
        "Properties": {
            "AutoScalingGroupName": name,
            "MinSize": "0",
            "MaxSize": str(most_of(plan, spot=on_demand_percentage == 0)),
            # Of two, the one that does not train yet.
            **({"TerminationPolicies": ["NewestInstance"]} if second else {}),
            "VPCZoneIdentifier": _ref("Subnets"),
            "CapacityRebalance": plan.rebalance,
            "HealthCheckType": "EC2",
            "HealthCheckGracePeriod": 900,
            "MixedInstancesPolicy": {
                "InstancesDistribution": {
                    "OnDemandBaseCapacity": 0,
                    # Left out it is 100: on-demand machines only, and nobody says so.
                    "OnDemandPercentageAboveBaseCapacity": on_demand_percentage,
                    "OnDemandAllocationStrategy": "prioritized",
                    "SpotAllocationStrategy": plan.strategy,
                },
                "LaunchTemplate": {
                    "LaunchTemplateSpecification": launch,
                    "Overrides": [{"InstanceType": kind} for kind in plan.types],
                },
            },
            "LifecycleHookSpecificationList": [
                {
                    "LifecycleHookName": HOOK,
                    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                    "HeartbeatTimeout": HOOK_SECONDS,
                    "DefaultResult": "CONTINUE",
                }
            ],
            "MetricsCollection": [
                {"Granularity": "1Minute", "Metrics": ["GroupDesiredCapacity", "GroupInServiceInstances"]}
            ],
            "Tags": [{**_tag(RUN_TAG, plan.run), "PropagateAtLaunch": True}],
        },
    }


def _fallback(plan: LaunchPlan) -> Json:
    desired = _metric(plan, "desired", "GroupDesiredCapacity")
    in_service = _metric(plan, "in_service", "GroupInServiceInstances")
    # A standby that does not come is no reason to buy a machine.
    wanted = "desired - in_service" if plan.stands_by == NEVER else "IF(desired > 1, 1, desired) - in_service"
    gap = {"Id": "gap", "Expression": wanted, "Label": "machines that spot does not give"}
    hidden: Json = {"ReturnData": False}
    return {
        "BuyOnDemand": _set_on_demand(1),
        "LetOnDemandGo": _set_on_demand(0),
        "NoSpot": _alarm(
            f"Run {plan.run}: spot has had no machine for {plan.fallback_minutes} min",
            [{**gap, "ReturnData": True}, {**desired, **hidden}, {**in_service, **hidden}],
            plan.fallback_minutes,
            "BuyOnDemand",
        ),
        "SpotIsBack": _alarm(
            f"Run {plan.run}: spot has had a machine for {SPOT_IS_BACK_MINUTES} min",
            [{**in_service, "ReturnData": True}],
            SPOT_IS_BACK_MINUTES,
            "LetOnDemandGo",
        ),
    }


def _metric(plan: LaunchPlan, name: str, metric: str) -> Json:
    group = {"Name": "AutoScalingGroupName", "Value": spot_group(plan.run)}
    source = {"Namespace": "AWS/AutoScaling", "MetricName": metric, "Dimensions": [group]}
    return {"Id": name, "MetricStat": {"Metric": source, "Period": 60, "Stat": "Minimum"}}


def _set_on_demand(capacity: int) -> Json:
    return {
        "Type": "AWS::AutoScaling::ScalingPolicy",
        "Properties": {
            "AutoScalingGroupName": _ref("OnDemand"),
            "PolicyType": "StepScaling",
            "AdjustmentType": "ExactCapacity",
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": capacity}],
        },
    }


def _alarm(what: str, metrics: list[Json], minutes: int, policy: str) -> Json:
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmDescription": what,
            "Metrics": metrics,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "Threshold": 1,
            "EvaluationPeriods": minutes,
            "DatapointsToAlarm": minutes,
            "TreatMissingData": "notBreaching",
            "AlarmActions": [_ref(policy)],
        },
    }


def _tag(key: str, value: str) -> Json:
    return {"Key": key, "Value": value}
