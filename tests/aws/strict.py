"""AWS as strict as it is: moto, with the rules that moto leaves out, in this process and in virtual time.

Every call of every boto3 client passes through `StrictAws.call`. A method named after service and operation, such
as `ec2_AttachVolume`, adds rules to moto's answer or answers itself; all other calls are moto's. The rules are the
sixteen places of the kit page's §7.1 where moto is too kind; test_strict.py has a test of each.

    with StrictAws(clock) as aws:
        ec2 = boto3.client("ec2", region_name="us-east-1")
"""

from __future__ import annotations

import copy
import datetime
import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import botocore.client
from botocore.exceptions import ClientError
from fake_cloud import Content, Times
from moto import mock_aws
from strict_groups import Groups
from virtual import VirtualClock

Params = dict[str, Any]
Answer = dict[str, Any]
Real = Callable[[Params], Answer]
REGION = "us-east-1"
IMAGES = "MOTO_EC2_LOAD_DEFAULT_AMIS"


def refuse(code: str, message: str, operation: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


@dataclass
class StrictVolume:
    """What moto does not know of a volume."""

    zone: str
    ready_at: float
    visible_at: float
    content: Content
    holder: str | None = None
    device: str = ""
    attached_at: float = 0
    free_at: float | None = None
    detaching: bool = False
    broken: str | None = None


@dataclass
class StrictSnapshot:
    ready_at: float
    visible_at: float
    fails: bool
    content: Content


@dataclass
class Quotas:
    volumes: int = 1000
    attachments: int = 28
    instances: int = 1000


@dataclass
class StrictAws:
    clock: VirtualClock
    times: Times = field(default_factory=Times)
    quotas: Quotas = field(default_factory=Quotas)
    throttle: Callable[[str], str | None] = lambda _: None  # operation -> error code
    authorize: Callable[[str, str, Params], bool] | None = None  # service, operation, parameters
    snapshot_fails: int = 0  # so many
    visible_volumes: dict[str, StrictVolume] = field(default_factory=dict)
    visible_snapshots: dict[str, StrictSnapshot] = field(default_factory=dict)
    tokens: dict[str, tuple[Params, str]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def __enter__(self) -> StrictAws:
        self._before = os.environ.get(IMAGES)
        os.environ[IMAGES] = "false"  # seconds for each test
        self._moto = mock_aws()
        self._moto.start()
        self._made = botocore.client.BaseClient._make_api_call
        strict, made = self, self._made

        def call(client: Any, operation: str, params: Params) -> Answer:
            service = client.meta.service_model.service_name
            return strict.call(service, operation, params, lambda p: made(client, operation, p))

        botocore.client.BaseClient._make_api_call = call
        self.groups = Groups(self)
        self.fast_restores: dict[tuple[str, str], float] = {}
        self._numbers = itertools.count(1)
        self.random = random.Random(0)
        return self

    def __exit__(self, *_: object) -> None:
        botocore.client.BaseClient._make_api_call = self._made
        self.groups.restore()
        self._moto.stop()
        if self._before is None:  # other tests want moto's images
            os.environ.pop(IMAGES, None)
        else:
            os.environ[IMAGES] = self._before

    def call(self, service: str, operation: str, params: Params, real: Real) -> Answer:
        code = self.throttle(operation)
        if code is not None:
            raise refuse(code, "injected", operation)
        if self.authorize is not None and not self.authorize(service, operation, params):
            code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
            raise refuse(code, f"not authorized to perform {service}:{operation}", operation)
        self.settle()
        self.log.append(operation)
        name = f"{service}_{operation}"
        rule = getattr(self, name, None) or getattr(self.groups, name, None)
        answer = rule(params, real) if rule is not None else real(params)
        self.settle()
        return answer

    def settle(self) -> None:
        """What has happened by now."""
        now = self.clock.now()
        for volume in self.visible_volumes.values():
            if volume.free_at is not None and now >= volume.free_at:
                volume.holder = volume.free_at = None
                volume.detaching = False
        self.groups.settle()

    def date(self, at: float | None = None) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.clock.now() if at is None else at, datetime.timezone.utc)

    # EC2: volumes.

    def ec2_CreateVolume(self, params: Params, real: Real) -> Answer:  # noqa: N802
        params = dict(params)
        token = params.pop("ClientToken", None)
        asked = copy.deepcopy(params)
        if token in self.tokens:
            before, volume_id = self.tokens[token]
            if before != asked:
                raise refuse("IdempotentParameterMismatch", f"client token {token} has other parameters")
            return self._one_volume(volume_id)
        zone = params.get("AvailabilityZone", "")
        if zone not in self.zones():
            raise refuse("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        if params.get("VolumeType") == "gp3":
            iops = params.setdefault("Iops", 3000)
            throughput = params.setdefault("Throughput", 125)
            if not 3000 <= iops <= 80000 or not 125 <= throughput <= 2000:
                raise refuse("InvalidParameterValue", "gp3: iops 3000 to 80000, throughput 125 to 2000 MiB/s")
            if throughput > iops * 0.25:
                raise refuse("InvalidParameterCombination", "throughput/iops ratio is more than 0.25")
        if len(self.visible_volumes) >= self.quotas.volumes:
            raise refuse("VolumeLimitExceeded", "Maximum number of volumes exceeded")
        now = self.clock.now()
        content = Content()
        if "SnapshotId" in params:
            snapshot = self.visible_snapshots.get(params["SnapshotId"])
            if snapshot is None or now < snapshot.visible_at:
                raise refuse(
                    "InvalidSnapshot.NotFound", f"The snapshot '{params['SnapshotId']}' does not exist."
                )
            if self._snapshot_state(snapshot) != "completed":
                raise refuse("IncorrectState", "Snapshot is in invalid state")
            content = copy.deepcopy(snapshot.content)
        volume_id = real(params)["VolumeId"]
        self.visible_volumes[volume_id] = StrictVolume(
            zone, now + self.times.create, now + self.times.visible, content
        )
        if token is not None:
            self.tokens[token] = (asked, volume_id)
        return self._one_volume(volume_id, also_invisible=True)

    def ec2_AttachVolume(self, params: Params, real: Real) -> Answer:  # noqa: N802
        volume_id, instance, device = params["VolumeId"], params["InstanceId"], params["Device"]
        volume = self._visible(volume_id)
        state, zone = self.instance(instance)
        if state != "running":
            raise refuse("IncorrectState", f"Instance '{instance}' is not 'running'.")
        shown = self._volume_state(volume)
        if shown == "in-use":
            raise refuse("VolumeInUse", f"{volume_id} is already attached to an instance")
        if shown != "available":
            raise refuse("IncorrectState", f"Volume '{volume_id}' is not 'available'.")
        if volume.zone != zone:
            raise refuse(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume_id}' is not in the same availability zone as instance '{instance}'",
            )
        held = [v for v in self.visible_volumes.values() if v.holder == instance]
        if len(held) >= self.quotas.attachments:
            raise refuse("AttachmentLimitExceeded", f"{instance} has no room for another volume")
        if any(v.device == device for v in held):
            raise refuse("InvalidParameterValue", f"Attachment point {device} is already in use")
        volume.holder, volume.device, volume.free_at, volume.detaching = instance, device, None, False
        volume.attached_at = self.clock.now() + self.times.attach
        return self._attachment(volume_id, volume)

    def ec2_DetachVolume(self, params: Params, real: Real) -> Answer:  # noqa: N802
        volume_id = params["VolumeId"]
        volume = self._visible(volume_id)
        if self._volume_state(volume) != "in-use":
            raise refuse("IncorrectState", f"Volume '{volume_id}' is in the 'available' state.")
        if params.get("InstanceId", volume.holder) != volume.holder:
            raise refuse(
                "InvalidAttachment.NotFound", f"{volume_id} is not attached to {params['InstanceId']}"
            )
        volume.detaching = True
        volume.free_at = self.clock.now() + (0 if params.get("Force") else self.times.detach)
        return self._attachment(volume_id, volume)

    def ec2_DeleteVolume(self, params: Params, real: Real) -> Answer:  # noqa: N802
        volume = self._visible(params["VolumeId"])
        if self._volume_state(volume) == "in-use":
            raise refuse("VolumeInUse", f"{params['VolumeId']} is currently attached to {volume.holder}")
        answer = real(params)
        del self.visible_volumes[params["VolumeId"]]
        return answer

    def ec2_DescribeVolumes(self, params: Params, real: Real) -> Answer:  # noqa: N802
        for volume_id in params.get("VolumeIds", []):
            if volume_id in self.visible_volumes:
                self._visible(volume_id)
        params = dict(params)
        params["Filters"], ours = _split(
            params.get("Filters", []),
            ("status", "attachment.status", "attachment.instance-id", "attachment.device"),
        )
        answer = real(params)
        shown = [self._show(volume) for volume in answer["Volumes"]]
        answer["Volumes"] = [v for v in shown if v is not None and _volume_passes(v, ours)]
        return answer

    def ec2_DescribeVolumeStatus(self, params: Params, real: Real) -> Answer:  # noqa: N802
        wanted = params.get("VolumeIds") or list(self.visible_volumes)
        return {
            "VolumeStatuses": [
                {
                    "VolumeId": name,
                    "AvailabilityZone": self._visible(name).zone,
                    "VolumeStatus": {"Status": "ok", "Details": []},
                    "Events": [],
                    "Actions": [],
                }
                for name in wanted
            ]
        }

    # EC2: snapshots.

    def ec2_CreateSnapshot(self, params: Params, real: Real) -> Answer:  # noqa: N802
        source = self._visible(params["VolumeId"])
        answer = real(params)
        now = self.clock.now()
        self.visible_snapshots[answer["SnapshotId"]] = StrictSnapshot(
            now + self.times.snapshot,
            now + self.times.visible,
            self.snapshot_fails > 0,
            copy.deepcopy(source.content),
        )
        self.snapshot_fails = max(0, self.snapshot_fails - 1)
        answer["State"] = "pending"
        answer["StartTime"] = self.date()
        return answer

    def ec2_DescribeSnapshots(self, params: Params, real: Real) -> Answer:  # noqa: N802
        now = self.clock.now()
        for name in params.get("SnapshotIds", []):
            if name in self.visible_snapshots and now < self.visible_snapshots[name].visible_at:
                raise refuse("InvalidSnapshot.NotFound", f"The snapshot '{name}' does not exist.")
        params = dict(params)
        params["Filters"], ours = _split(params.get("Filters", []), ("status",))
        answer = real(params)
        shown = []
        for each in answer["Snapshots"]:
            known = self.visible_snapshots.get(each["SnapshotId"])
            if known is not None:
                if now < known.visible_at:
                    continue
                each["State"] = self._snapshot_state(known)
                each["StartTime"] = self.date(known.ready_at - self.times.snapshot)
            if all(each["State"] in rule["Values"] for rule in ours):
                shown.append(each)
        answer["Snapshots"] = shown
        return answer

    def ec2_DeleteSnapshot(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        self.visible_snapshots.pop(params["SnapshotId"], None)
        return answer

    def ec2_EnableFastSnapshotRestores(self, params: Params, real: Real) -> Answer:  # noqa: N802
        made = []
        for snapshot in params["SourceSnapshotIds"]:
            for zone in params["AvailabilityZones"]:
                self.fast_restores[(snapshot, zone)] = self.clock.now() + 3600  # an hour for each TiB
                made.append({"SnapshotId": snapshot, "AvailabilityZone": zone, "State": "enabling"})
        return {"Successful": made, "Unsuccessful": []}

    # EC2: instances and fleets.

    def ec2_TerminateInstances(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        for instance in params["InstanceIds"]:
            self.lose(instance)
        self.groups.forget(params["InstanceIds"])
        return answer

    def ec2_DescribeInstances(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        for reservation in answer["Reservations"]:
            for instance in reservation["Instances"]:
                self.groups.complete(instance)
        return answer

    def ec2_CreateFleet(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = real(params)
        for made in answer.get("Instances", []):
            self.tag_instances(made["InstanceIds"], {"aws:ec2:fleet-id": answer["FleetId"]})
        for instance in self.fleet_instances(answer["FleetId"]):
            self.tag_instances([instance], {"aws:ec2:fleet-id": answer["FleetId"]})
        return answer

    def ec2_DeleteFleets(self, params: Params, real: Real) -> Answer:  # noqa: N802
        fleets = self.ec2().fleets
        gone = [f for f in params["FleetIds"] if f in fleets and "deleted" in fleets[f].state]
        ended = [i for f in params["FleetIds"] if f in fleets for i in self.fleet_instances(f)]
        left = [f for f in params["FleetIds"] if f not in gone]
        answer = (
            real({**params, "FleetIds": left})
            if left
            else {"SuccessfulFleetDeletions": [], "UnsuccessfulFleetDeletions": []}
        )
        if params.get("TerminateInstances"):
            for instance in ended:
                self.lose(instance)
        for fleet in gone:  # deleting it twice is no error
            answer["SuccessfulFleetDeletions"].append(
                {"FleetId": fleet, "CurrentFleetState": "deleted", "PreviousFleetState": "deleted"}
            )
        return answer

    def ec2_ModifyFleet(self, params: Params, real: Real) -> Answer:  # noqa: N802
        fleet = self.ec2().fleets.get(params["FleetId"])
        if fleet is None or "deleted" in fleet.state:
            raise refuse("InvalidFleetId.NotFound", f"{params['FleetId']} does not exist")
        if fleet.fleet_type == "instant":
            raise refuse("InvalidParameterValue", "an instant fleet cannot be modified")
        capacity = params.get("TargetCapacitySpecification", {}).get("TotalTargetCapacity")
        if capacity is not None:
            fleet.target_capacity = capacity
        return {"Return": True}

    def ec2_GetSpotPlacementScores(self, params: Params, real: Real) -> Answer:  # noqa: N802
        regions = params.get("RegionNames") or [REGION]
        return {"SpotPlacementScores": [{"Region": region, "Score": 7} for region in regions]}

    # For the double itself and its tests.

    def ec2(self) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends["123456789012"][REGION]

    def zones(self) -> list[str]:
        return [zone.name for zone in self.ec2().describe_availability_zones()]

    def instance(self, instance: str) -> tuple[str, str]:
        found = next((i for i in self.ec2().all_instances() if i.id == instance), None)
        if found is None:
            raise refuse("InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
        return found._state.name, found._placement.zone

    def fleet_instances(self, fleet: str) -> list[str]:
        known = self.ec2().fleets[fleet]
        spot = [request.instance.id for request in known.spot_requests if request.instance]
        return spot + [made["instance"].id for made in known.on_demand_instances]

    def tag_instances(self, instances: list[str], tags: dict[str, str]) -> None:
        self.ec2().create_tags(instances, tags)

    def lose(self, instance: str) -> None:
        """Its volumes are free only after a while."""
        for volume in self.visible_volumes.values():
            if volume.holder == instance and volume.free_at is None:
                volume.free_at = self.clock.now() + self.times.lost

    def _visible(self, volume_id: str) -> StrictVolume:
        volume = self.visible_volumes.get(volume_id)
        if volume is None or self.clock.now() < volume.visible_at:
            raise refuse("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
        return volume

    def _volume_state(self, volume: StrictVolume) -> str:
        if volume.broken:
            return volume.broken
        if self.clock.now() < volume.ready_at:
            return "creating"
        return "available" if volume.holder is None else "in-use"

    def _snapshot_state(self, snapshot: StrictSnapshot) -> str:
        if self.clock.now() < snapshot.ready_at:
            return "pending"
        return "error" if snapshot.fails else "completed"

    def _attachment(self, volume_id: str, volume: StrictVolume) -> Answer:
        state = "attached" if self.clock.now() >= volume.attached_at else "attaching"
        return {
            "VolumeId": volume_id,
            "InstanceId": volume.holder,
            "Device": volume.device,
            "State": "detaching" if volume.detaching else state,
            "DeleteOnTermination": False,
        }

    def _show(self, shown: Answer, also_invisible: bool = False) -> Answer | None:
        volume = self.visible_volumes.get(shown["VolumeId"])
        if volume is None:  # a root volume
            return shown
        if self.clock.now() < volume.visible_at and not also_invisible:
            return None
        state = self._volume_state(volume)
        attached = [self._attachment(shown["VolumeId"], volume)] if volume.holder is not None else []
        return {**shown, "State": state, "Attachments": attached}

    def _one_volume(self, volume_id: str, also_invisible: bool = False) -> Answer:
        volume = self.ec2().volumes[volume_id]
        shown = {
            "VolumeId": volume_id,
            "AvailabilityZone": volume.zone.name,
            "Size": volume.size,
            "VolumeType": volume.volume_type,
            "SnapshotId": volume.snapshot_id or "",
        }
        return self._show(shown, also_invisible=True) or shown


def _split(filters: list[Params], names: tuple[str, ...]) -> tuple[list[Params], list[Params]]:
    """moto's and ours."""
    return [f for f in filters if f["Name"] not in names], [f for f in filters if f["Name"] in names]


def _volume_passes(volume: Answer, rules: list[Params]) -> bool:
    attached = (volume.get("Attachments") or [{}])[0]
    values = {
        "status": volume["State"],
        "attachment.status": attached.get("State"),
        "attachment.instance-id": attached.get("InstanceId"),
        "attachment.device": attached.get("Device"),
    }
    return all(values[rule["Name"]] in rule["Values"] for rule in rules)
