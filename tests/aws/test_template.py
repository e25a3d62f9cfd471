"""What the template must say, whatever was asked for."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import plans
import pytest

from holdfast_aws import user_data
from holdfast_aws.plan import LaunchPlan, UsageError
from holdfast_aws.template import template

BODY_LIMIT = 51200  # bytes of a template that is not in a bucket

Json = dict[str, Any]


def of_type(kind: str, made: Json) -> dict[str, Json]:
    return {n: r["Properties"] for n, r in made["Resources"].items() if r["Type"].endswith("::" + kind)}


def machine(made: Json) -> Json:
    (data,) = of_type("LaunchTemplate", made).values()
    return dict(data["LaunchTemplateData"])


def violations(made: Json, plan: LaunchPlan = plans.PLAIN) -> list[str]:
    """The rules that this template breaks."""
    launch, groups = machine(made), of_type("AutoScalingGroup", made)
    (role,) = of_type("Role", made).values()
    disks = launch["BlockDeviceMappings"]
    mixes = [g["MixedInstancesPolicy"]["InstancesDistribution"] for g in groups.values()]
    spot = groups["Spot"]["MixedInstancesPolicy"]["InstancesDistribution"]
    run_policy = plan.policy
    rules = {
        "OnDemandPercentage given": all("OnDemandPercentageAboveBaseCapacity" in mix for mix in mixes),
        "spot is spot": spot.get("OnDemandPercentageAboveBaseCapacity") == 0,
        "capacity first": spot.get("SpotAllocationStrategy")
        in ("price-capacity-optimized", "capacity-optimized"),
        "no maximum price": "SpotMaxPrice" not in json.dumps(made) and "MaxPrice" not in json.dumps(made),
        "no spot by launch template": "InstanceMarketOptions" not in launch,
        "one disk": len(disks) == 1,
        "which dies with its machine": all(disk["Ebs"].get("DeleteOnTermination") is True for disk in disks),
        "no tag of the run on disks": all(
            spec["ResourceType"] == "instance" for spec in launch["TagSpecifications"]
        ),
        "IMDSv2": launch["MetadataOptions"].get("HttpTokens") == "required",
        "two hops": launch["MetadataOptions"].get("HttpPutResponseHopLimit") == 2,
        "a shutdown ends it": launch.get("InstanceInitiatedShutdownBehavior") == "terminate",
        "no key, no password": "KeyName" not in launch,
        "nobody comes in": all(
            "SecurityGroupIngress" not in g for g in of_type("SecurityGroup", made).values()
        ),
        "the one policy": [p["PolicyDocument"] for p in role["Policies"]] == [run_policy],
        "starts nothing": all("DesiredCapacity" not in g and g["MinSize"] == "0" for g in groups.values()),
        "tagged for the policy": all(
            {"Key": "holdfast:run", "Value": "r1", "PropagateAtLaunch": True} in g["Tags"]
            for g in groups.values()
        ),
        "waits for the last commit": all(
            hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
            and hook["HeartbeatTimeout"] >= 300
            for g in groups.values()
            for hook in g.get("LifecycleHookSpecificationList", [{"LifecycleTransition": ""}])
        ),
        "owns no data": not {"Volume", "Snapshot", "Bucket"}
        & {r["Type"].split("::")[-1] for r in made["Resources"].values()},
    }
    return [name for name, good in rules.items() if not good]


@pytest.mark.parametrize("name", plans.ALL)
def test_keeps_all_rules(name: str) -> None:
    assert violations(template(plans.ALL[name]), plans.ALL[name]) == []


def broken(name: str) -> Json:
    """A template with one thing spoilt."""
    made = template(plans.PLAIN)
    launch, group = machine(made), made["Resources"]["Spot"]["Properties"]
    mix = group["MixedInstancesPolicy"]["InstancesDistribution"]
    if name == "OnDemandPercentage given":
        del mix["OnDemandPercentageAboveBaseCapacity"]
    elif name == "no maximum price":
        mix["SpotMaxPrice"] = "1.00"
    elif name == "capacity first":
        mix["SpotAllocationStrategy"] = "lowest-price"
    elif name == "one disk":
        launch["BlockDeviceMappings"].append({"DeviceName": "/dev/sdf", "Ebs": {"DeleteOnTermination": True}})
    elif name == "no tag of the run on disks":
        launch["TagSpecifications"].append({"ResourceType": "volume", "Tags": []})
    elif name == "IMDSv2":
        launch["MetadataOptions"]["HttpTokens"] = "optional"
    elif name == "the one policy":
        policy = made["Resources"]["Role"]["Properties"]["Policies"][0]["PolicyDocument"]
        policy["Statement"][0]["Action"] = "ec2:*"
    elif name == "starts nothing":
        group["DesiredCapacity"] = "1"
    elif name == "waits for the last commit":
        del group["LifecycleHookSpecificationList"]
    return made


@pytest.mark.parametrize(
    "name",
    [
        "OnDemandPercentage given",
        "no maximum price",
        "capacity first",
        "one disk",
        "no tag of the run on disks",
        "IMDSv2",
        "the one policy",
        "starts nothing",
        "waits for the last commit",
    ],
)
def test_notices_a_broken_rule(name: str) -> None:
    assert name in violations(broken(name))


@pytest.mark.parametrize("name", plans.ALL)
def test_fits(name: str) -> None:
    made = template(plans.ALL[name])
    assert len(json.dumps(made, separators=(",", ":"))) <= BODY_LIMIT
    assert len(base64.b64decode(machine(made)["UserData"])) <= user_data.LIMIT


def test_user_data_beyond_the_limit_is_refused() -> None:
    noise = "".join(hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(1000))
    with pytest.raises(UsageError, match="EC2 allows 16384"):
        template(plans.plan(setup=noise))


def test_machine_fetches_the_package_of_its_template(tmp_path: Path) -> None:
    made = template(plans.PLAIN)
    parts = {p["Name"]: p["Value"] for p in of_type("Parameter", made).values()}
    assert all(name.startswith("/holdfast-kit/r1/") and len(value) <= 4096 for name, value in parts.items())
    packed = base64.b64decode("".join(parts[name] for name in sorted(parts)))
    config = gzip.decompress(base64.b64decode(machine(made)["UserData"])).decode()
    assert hashlib.sha256(packed).hexdigest() in config
    sources = json.loads(lzma.decompress(packed))
    assert set(sources) == set(user_data.machine_modules(frozenset({"standby", "home", "nodes"})))
    for name, source in sources.items():
        (tmp_path / "holdfast_aws").mkdir(exist_ok=True)
        (tmp_path / "holdfast_aws" / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "holdfast_aws.machine", "--help"]
    told = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=True).stdout
    assert "hf volume up" in told
    all_of_it = "import " + ", ".join(f"holdfast_aws.{name}" for name in sources)
    there = {"PYTHONPATH": ":".join(path for path in sys.path if path.endswith("site-packages"))}
    subprocess.run([sys.executable, "-c", all_of_it], cwd=tmp_path, env=there, check=True)
    assert "template" not in user_data.machine_modules()


def test_rendering_is_reproducible() -> None:
    assert template(plans.PLAIN) == template(plans.PLAIN)


def test_alarms_act_on_the_on_demand_group() -> None:
    made = template(plans.plan(fallback_minutes=20))
    alarms, policies = of_type("Alarm", made), of_type("ScalingPolicy", made)
    assert {n: a["EvaluationPeriods"] for n, a in alarms.items()} == {"NoSpot": 20, "SpotIsBack": 10}
    buys = {
        name: policies[alarm["AlarmActions"][0]["Ref"]]["StepAdjustments"][0]["ScalingAdjustment"]
        for name, alarm in alarms.items()
    }
    assert buys == {"NoSpot": 1, "SpotIsBack": 0}
    assert {p["AutoScalingGroupName"]["Ref"] for p in policies.values()} == {"OnDemand"}
    assert all(alarm["TreatMissingData"] == "notBreaching" for alarm in alarms.values())
    assert not of_type("Alarm", template(plans.PLAIN))


def test_nodes_share_one_network() -> None:
    made = template(plans.ALL["nodes"])
    launch = machine(made)
    assert [i["NetworkCardIndex"] for i in launch["NetworkInterfaces"]] == [0, 0, 1, 2, 3]
    assert "SecurityGroupIds" not in launch
    assert launch["Placement"] == {"GroupName": {"Ref": "Close"}}
    assert made["Resources"]["Spot"]["Properties"]["MaxSize"] == "4"


def test_takes_the_largest_volume_that_gp3_can_be() -> None:
    """As EC2's own model has it."""
    import boto3

    model = boto3.client("ec2").meta.service_model.operation_model("CreateVolume").input_shape.members
    for name, most in (("Size", "65,536"), ("Iops", "80,000"), ("Throughput", "2000")):
        gp3 = model[name].documentation.partition("gp3")[2].partition("</li>")[0] or model[name].documentation
        assert f"- {most}" in gp3.replace("<code>", "").replace("</code>", "").replace("</i>)", ""), name
    assert plans.plan(size_gib=65536, iops=80000, throughput=2000).iops == 80000


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"size_gib": 65537}, "--size 65537: from 1 to 65536"),
        ({"iops": 80001, "size_gib": 1000}, "--iops 80001: from 3000 to 80000"),
        ({"throughput": 2001, "iops": 16000}, "--throughput 2001: from 125 to 2000"),
        ({"run": "a/b"}, "name"),
        ({"command": ("train",)}, "run directory"),
        ({"command": ()}, "which command"),
        ({"image": "registry/train:latest"}, "digest"),
        ({"throughput": 1000, "iops": 3000}, "--iops 4000"),
        ({"size_gib": 5, "iops": 6000}, "--size 12"),
        ({"nodes": 2}, "--shared"),
        ({"nodes": 2, "shared": "fs-1.efs.amazonaws.com:/"}, "--setup"),
        ({"strategy": "lowest-price"}, "--strategy"),
        ({"fallback_minutes": -1}, "--fallback-minutes"),
        ({"home": "efs"}, "--home efs: ebs, s3, or s3://"),
        ({"home": "s3://a.b/x"}, "without dots"),
        ({"home": "s3://bucket/*"}, "--home s3://bucket"),
        (
            {"home": "s3", "size_gib": 200, "iops": 3000, "throughput": 125},
            "--size, --iops, --throughput means nothing",
        ),
        (
            {"nodes": 2, "shared": "fs-1.efs.amazonaws.com:/", "image": "", "setup": "true", "home": "s3"},
            "--nodes has neither",
        ),
    ],
)
def test_refuses_plans_that_cannot_work(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        plans.plan(**changes)


# Two tiers


@pytest.mark.parametrize("home", ["s3", "s3://bucket"])
def test_s3_without_a_bucket_or_a_region_renders_nothing(home: str) -> None:
    with pytest.raises(UsageError, match="bucket's name" if home == "s3" else "region"):
        template(plans.plan(home=home))


def files_of(plan: LaunchPlan) -> dict[str, str]:
    config = json.loads(user_data.cloud_config(plan).partition("\n")[2])
    return {one["path"]: one["content"] for one in config["write_files"]}


def test_the_default_image_is_the_newest_ubuntu_of_the_deep_learning_base_ami() -> None:
    image = template(plans.PLAIN)["Parameters"]["Image"]
    assert image["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert image["Default"].endswith("/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id")


def test_a_machine_of_a_run_in_s3_has_no_volume() -> None:
    files = files_of(plans.ALL["s3"])
    unit = files["/etc/systemd/system/holdfast-volume.service"]
    assert "ExecStart=/opt/holdfast/hf home up" in unit
    assert "hf volume" not in unit
    assert not any("lead-snapshot" in name for name in files)
    environment = files["/etc/holdfast/run.env"]
    for line in ("HF_S3=bucket/runs/r1", "RCLONE_CONFIG_HOLDFAST_REGION=us-east-1"):
        assert f"{line}\n" in environment
    assert "KEY" not in environment, "the instance's role has the credentials"


def test_two_runs_in_one_bucket_never_share_a_place() -> None:
    one, other = (plans.plan(run=run, home="s3://bucket/x", region="us-east-1").s3 for run in ("r1", "r2"))
    assert (one, other) == ("bucket/x/r1", "bucket/x/r2")


def test_nvme_brings_its_script_and_a_directory_of_its_own() -> None:
    files = files_of(plans.ALL["nvme"])
    assert files["/opt/holdfast/raid0"].startswith("#!/bin/bash\n# raid0:")
    assert "HF_RUN_DIRS=/mnt/fast/run\n" in files["/etc/holdfast/run.env"]
    assert "/opt/holdfast/raid0" not in files_of(plans.PLAIN)
