"""The calls of cloud.py, made with boto3. No retries here: the caller knows what may be tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from holdfast_aws import cloud
from holdfast_aws.cloud import CloudError, Group, Snapshot, Volume, VolumeSpec

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import SnapshotTypeDef, TagTypeDef, VolumeTypeDef

T = TypeVar("T")


def config() -> Config:
    return Config(
        connect_timeout=5,
        read_timeout=20,
        retries={"total_max_attempts": 1},
        user_agent_extra="holdfast",
    )


class Aws:
    """Implements cloud.Cloud in one region."""

    def __init__(self, region: str, session: boto3.Session | None = None) -> None:
        session = session or boto3.Session()
        self._ec2 = session.client("ec2", region_name=region, config=config())
        self._ssm = session.client("ssm", region_name=region, config=config())
        self._scaling = session.client("autoscaling", region_name=region, config=config())
        self._metrics = session.client("cloudwatch", region_name=region, config=config())

    def parameters(self, path: str) -> dict[str, str]:
        pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
        return _ask(lambda: {p["Name"]: p["Value"] for page in pages for p in page["Parameters"]})

    def put_once(self, name: str, value: str) -> bool:
        try:
            _ask(lambda: self._ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=False))
        except CloudError as error:
            if error.code == "ParameterAlreadyExists":
                return False
            raise
        return True

    def put(self, name: str, value: str) -> None:
        _ask(lambda: self._ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True))

    def volume(self, volume_id: str) -> Volume | None:
        found = _ask(lambda: self._ec2.describe_volumes(VolumeIds=[volume_id]))["Volumes"]
        return _volume(found[0]) if found else None

    def volumes(self, run: str, instance: str | None = None) -> list[Volume]:
        filters: list[Any] = [{"Name": f"tag:{cloud.RUN_TAG}", "Values": [run]}]
        if instance is not None:
            filters.append({"Name": "attachment.instance-id", "Values": [instance]})
        pages = self._ec2.get_paginator("describe_volumes").paginate(Filters=filters)
        return _ask(lambda: [_volume(v) for page in pages for v in page["Volumes"]])

    def snapshots(self, run: str) -> list[Snapshot]:
        pages = self._ec2.get_paginator("describe_snapshots").paginate(
            OwnerIds=["self"], Filters=[{"Name": f"tag:{cloud.RUN_TAG}", "Values": [run]}]
        )
        return _ask(lambda: [_snapshot(s) for page in pages for s in page["Snapshots"]])

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        try:
            found = _ask(lambda: self._ec2.describe_snapshots(SnapshotIds=[snapshot_id]))["Snapshots"]
        except CloudError as error:
            if error.code == "InvalidSnapshot.NotFound":
                return None
            raise
        return _snapshot(found[0]) if found else None

    def living(self, instances: Iterable[str]) -> frozenset[str]:
        # By filter: an id that EC2 does not know is no error then.
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": "instance-id", "Values": list(instances)},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )
        return _ask(
            lambda: frozenset(
                instance["InstanceId"]
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            )
        )

    def create_volume(self, spec: VolumeSpec) -> str:
        request: dict[str, Any] = {
            "AvailabilityZone": spec.zone,
            "Size": spec.size_gib,
            "VolumeType": "gp3",
            "Iops": spec.iops,
            "Throughput": spec.throughput,
            "ClientToken": spec.token,
            "TagSpecifications": [_tagged("volume", spec.tags)],
        }
        if spec.snapshot:
            request["SnapshotId"] = spec.snapshot
        return _ask(lambda: self._ec2.create_volume(**request))["VolumeId"]

    def create_snapshot(self, volume_id: str, tags: Mapping[str, str], description: str) -> str:
        return _ask(
            lambda: self._ec2.create_snapshot(
                VolumeId=volume_id, Description=description, TagSpecifications=[_tagged("snapshot", tags)]
            )
        )["SnapshotId"]

    def delete_snapshot(self, snapshot_id: str) -> None:
        _ask(lambda: self._ec2.delete_snapshot(SnapshotId=snapshot_id))

    def attach(self, volume_id: str, instance: str, device: str) -> None:
        _ask(lambda: self._ec2.attach_volume(VolumeId=volume_id, InstanceId=instance, Device=device))

    def detach(self, volume_id: str, instance: str) -> None:
        _ask(lambda: self._ec2.detach_volume(VolumeId=volume_id, InstanceId=instance))

    def tag_retired(self, volume_id: str, generation: int) -> None:
        tag: TagTypeDef = {"Key": cloud.RETIRED_TAG, "Value": str(generation)}
        _ask(lambda: self._ec2.create_tags(Resources=[volume_id], Tags=[tag]))

    def groups(self, run: str) -> list[Group]:
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(
            Filters=[{"Name": f"tag:{cloud.RUN_TAG}", "Values": [run]}]
        )
        return _ask(
            lambda: [
                Group(
                    group["AutoScalingGroupName"],
                    group["DesiredCapacity"],
                    group["MaxSize"],
                    {member["InstanceId"]: member["LifecycleState"] for member in group["Instances"]},
                )
                for page in pages
                for group in page["AutoScalingGroups"]
            ]
        )

    def group_of(self, instance: str) -> str | None:
        found = _ask(lambda: self._scaling.describe_auto_scaling_instances(InstanceIds=[instance]))
        members = found["AutoScalingInstances"]
        return members[0]["AutoScalingGroupName"] if members else None

    def set_desired(self, group: str, capacity: int) -> None:
        _ask(
            lambda: self._scaling.set_desired_capacity(
                AutoScalingGroupName=group, DesiredCapacity=capacity, HonorCooldown=False
            )
        )

    def leave(self, instance: str, *, fewer: bool) -> None:
        _ask(
            lambda: self._scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=fewer
            )
        )

    def marks(self, run: str, instances: Sequence[str]) -> dict[str, frozenset[str]]:
        names = [
            f"/holdfast/{run}/crew/{name}/{what}" for name in instances for what in ("ready", "began", "over")
        ]
        found: set[str] = set()
        for at in range(0, len(names), 10):  # SSM takes ten
            part = names[at : at + 10]
            found |= {p["Name"] for p in _ask(lambda: self._ssm.get_parameters(Names=part))["Parameters"]}  # noqa: B023
        return {
            name: frozenset(
                what for what in ("ready", "began", "over") if f"/holdfast/{run}/crew/{name}/{what}" in found
            )
            for name in instances
        }

    def set_unhealthy(self, instance: str) -> None:
        _ask(
            lambda: self._scaling.set_instance_health(
                InstanceId=instance, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        )

    def complete_hook(self, group: str, hook: str, instance: str) -> None:
        _ask(
            lambda: self._scaling.complete_lifecycle_action(
                AutoScalingGroupName=group,
                LifecycleHookName=hook,
                InstanceId=instance,
                LifecycleActionResult="CONTINUE",
            )
        )

    def metric(self, run: str, name: str) -> None:
        _ask(
            lambda: self._metrics.put_metric_data(
                Namespace="Holdfast",
                MetricData=[
                    {
                        "MetricName": name,
                        "Dimensions": [{"Name": "run", "Value": run}],
                        "Value": 1,
                        "Unit": "Count",
                    }
                ],
            )
        )


def _ask(call: Callable[[], T]) -> T:
    try:
        return call()
    except ClientError as error:
        told = error.response.get("Error", {})
        raise CloudError(told.get("Code", "Unknown"), told.get("Message", "")) from error
    except BotoCoreError as error:  # no connection, no credentials yet, a torn answer
        raise CloudError("Timeout", str(error)) from error


def _tagged(kind: Any, tags: Mapping[str, str]) -> Any:
    return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def _tags(tags: Iterable[TagTypeDef]) -> dict[str, str]:
    return {tag.get("Key", ""): tag.get("Value", "") for tag in tags}


def _volume(shown: VolumeTypeDef) -> Volume:
    attached = (shown.get("Attachments") or [{}])[0]
    return Volume(
        id=shown["VolumeId"],
        zone=shown["AvailabilityZone"],
        state=shown["State"],
        holder=attached.get("InstanceId"),
        attachment=attached.get("State"),
        device=attached.get("Device"),
        size_gib=shown["Size"],
        snapshot=shown.get("SnapshotId") or "",
        tags=_tags(shown.get("Tags", [])),
    )


def _snapshot(shown: SnapshotTypeDef) -> Snapshot:
    return Snapshot(
        id=shown["SnapshotId"],
        volume=shown["VolumeId"],
        state=shown["State"],
        started=shown["StartTime"].timestamp(),
        tags=_tags(shown.get("Tags", [])),
    )
