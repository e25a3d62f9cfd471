"""EC2, SSM and Auto Scaling in memory, as strict as strict.py and a thousand times faster.

test_doubles_agree.py runs the same scenarios on both. Time is the clock's; nothing happens by itself but what
time brings: volumes and snapshots become ready, attachments end.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from virtual import VirtualClock

from holdfast_aws import cloud as aws
from holdfast_aws.cloud import CloudError, Group, Snapshot, Volume, VolumeSpec


@dataclass
class Times:
    """Seconds that EC2 takes."""

    create: float = 3
    attach: float = 2
    detach: float = 2
    lost: float = 360  # from the loss of a machine until its volumes are free
    snapshot: float = 60
    visible: float = 0  # until a describe shows what was made
    stale: float = 0  # until a describe shows an attachment or its end


@dataclass
class Content:
    """What a volume's bytes say."""

    filesystem: str | None = None
    step: int = 0
    expected: bool = False  # a run directory is there
    damaged: bool = False
    lease: tuple[str, str, float] | None = None  # instance, boot, time


@dataclass
class FakeVolume:
    id: str
    spec: VolumeSpec
    ready_at: float
    visible_at: float
    content: Content
    holder: str | None = None
    device: str | None = None
    attached_at: float = 0
    free_at: float | None = None  # detaching, or its machine is lost
    detaching: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    broken: str | None = None  # a state such as "error"
    before: Volume | None = None  # as it was shown until it changed
    changed_at: float = float("-inf")


@dataclass
class FakeSnapshot:
    id: str
    volume: str
    started: float
    ready_at: float
    visible_at: float
    content: Content
    tags: dict[str, str]
    fails: bool = False


@dataclass
class FakeInstance:
    id: str
    zone: str
    state: str = "running"
    health: str = "Healthy"


class FakeCloud:
    """All machines of a test share one."""

    ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")

    def __init__(self, clock: VirtualClock, times: Times | None = None, **_: object) -> None:
        self.clock = clock
        self.times = times or Times()
        self.registers: dict[str, str] = {}
        self.all_volumes: dict[str, FakeVolume] = {}
        self.all_snapshots: dict[str, FakeSnapshot] = {}
        self.instances: dict[str, FakeInstance] = {}
        self.tokens: dict[str, tuple[VolumeSpec, str]] = {}
        self.capacity: dict[str, int] = {}
        self.hooks_completed: list[tuple[str, str, str]] = []
        self.metrics: list[str] = []
        self.snapshot_fails = 0  # so many
        self.volume_limit = 1000
        self.attach_limit = 28
        self._numbers = itertools.count(1)

    # What tests do.

    def launch(self, zone: str) -> str:
        name = f"i-{next(self._numbers):017x}"
        self.instances[name] = FakeInstance(name, zone)
        return name

    def terminate(self, instance: str) -> None:
        self.instances[instance].state = "terminated"
        for volume in self.all_volumes.values():
            if volume.holder == instance and volume.free_at is None:
                volume.free_at = self.clock.now() + self.times.lost

    def content(self, volume: str) -> Content:
        return self.all_volumes[volume].content

    def ids(self) -> tuple[frozenset[str], frozenset[str]]:
        """All volumes and snapshots there are."""
        return frozenset(self.all_volumes), frozenset(self.all_snapshots)

    def holder_of(self, volume: str) -> str | None:
        found = self.all_volumes[volume]
        self._settle(found)
        return found.holder

    def plugged_into(self, volume: str) -> str | None:
        """Whose kernel sees it."""
        shown = self._shown(self.all_volumes[volume])
        return shown.holder if shown.attachment == "attached" else None

    def delete_volume(self, volume_id: str) -> None:
        """No machine may; for planted bugs."""
        del self.all_volumes[volume_id]

    # Cloud.

    def parameters(self, path: str) -> dict[str, str]:
        return {name: value for name, value in self.registers.items() if name.startswith(path + "/")}

    def put_once(self, name: str, value: str) -> bool:
        if name in self.registers:
            return False
        self.registers[name] = value
        return True

    def put(self, name: str, value: str) -> None:
        self.registers[name] = value

    def delete_snapshot(self, snapshot_id: str) -> None:
        if snapshot_id not in self.all_snapshots:
            raise CloudError("InvalidSnapshot.NotFound", snapshot_id)
        if aws.LEAD_TAG not in self.all_snapshots[snapshot_id].tags:
            raise CloudError("UnauthorizedOperation", "the policy")
        del self.all_snapshots[snapshot_id]

    def volume(self, volume_id: str) -> Volume | None:
        return self._told(self._visible(volume_id))

    def volumes(self, run: str, instance: str | None = None) -> list[Volume]:
        now = self.clock.now()
        shown = [
            self._told(v)
            for v in self.all_volumes.values()
            if v.visible_at <= now and v.tags.get(aws.RUN_TAG) == run
        ]
        return [v for v in shown if instance is None or v.holder == instance]

    def snapshots(self, run: str) -> list[Snapshot]:
        now = self.clock.now()
        return [
            self._photo(s)
            for s in self.all_snapshots.values()
            if s.visible_at <= now and s.tags.get(aws.RUN_TAG) == run
        ]

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        found = self.all_snapshots.get(snapshot_id)
        return None if found is None or found.visible_at > self.clock.now() else self._photo(found)

    def living(self, instances: Iterable[str]) -> frozenset[str]:
        return frozenset(
            i for i in instances if i in self.instances and self.instances[i].state in ("pending", "running")
        )

    def create_volume(self, spec: VolumeSpec) -> str:
        if spec.token in self.tokens:
            before, name = self.tokens[spec.token]
            if before != spec:
                raise CloudError("IdempotentParameterMismatch", spec.token)
            return name
        if spec.zone not in self.ZONES:
            raise CloudError("InvalidParameterValue", f"Invalid availability zone: [{spec.zone}]")
        if not 125 <= spec.throughput <= 2000 or not 3000 <= spec.iops <= 80000:
            raise CloudError("InvalidParameterValue", "gp3's iops or throughput is out of range")
        if spec.throughput > spec.iops * 0.25:
            raise CloudError("InvalidParameterCombination", "throughput/iops ratio > 0.25")
        if len(self.all_volumes) >= self.volume_limit:
            raise CloudError("VolumeLimitExceeded")
        now = self.clock.now()
        content = Content()
        if spec.snapshot:
            snapshot = self.all_snapshots.get(spec.snapshot)
            if snapshot is None:
                raise CloudError("InvalidSnapshot.NotFound", spec.snapshot)
            if self._photo(snapshot).state != "completed":
                raise CloudError("IncorrectState", "the snapshot is pending")
            content = copy.deepcopy(snapshot.content)
        name = f"vol-{next(self._numbers):017x}"
        ready = now + self.times.create
        made = FakeVolume(name, spec, ready, now + self.times.visible, content, tags=dict(spec.tags))
        self.all_volumes[name] = made
        self.tokens[spec.token] = (spec, name)
        return name

    def create_snapshot(self, volume_id: str, tags: Mapping[str, str], description: str) -> str:
        source = self._visible(volume_id)
        now = self.clock.now()
        name = f"snap-{next(self._numbers):017x}"
        self.all_snapshots[name] = FakeSnapshot(
            name,
            volume_id,
            now,
            now + self.times.snapshot,
            now + self.times.visible,
            copy.deepcopy(source.content),
            dict(tags),
            fails=self.snapshot_fails > 0,
        )
        self.snapshot_fails = max(0, self.snapshot_fails - 1)
        return name

    def attach(self, volume_id: str, instance: str, device: str) -> None:
        volume = self._visible(volume_id)
        shown = self._shown(volume)
        machine = self.instances.get(instance)
        if machine is None or machine.state != "running":
            raise CloudError("IncorrectState", f"Instance '{instance}' is not 'running'.")
        if shown.state == "in-use":
            raise CloudError("VolumeInUse", f"{volume_id} is already attached to {volume.holder}")
        if shown.state != "available":
            raise CloudError("IncorrectState", f"Volume '{volume_id}' is '{shown.state}'.")
        if volume.spec.zone != machine.zone:
            raise CloudError("InvalidVolume.ZoneMismatch", f"{volume_id} is not in {machine.zone}")
        others = [v for v in self.all_volumes.values() if self._shown(v).holder == instance]
        if len(others) >= self.attach_limit:
            raise CloudError("AttachmentLimitExceeded", instance)
        if any(v.device == device for v in others):
            raise CloudError("InvalidParameterValue", f"Attachment point {device} is already in use")
        volume.before, volume.changed_at = shown, self.clock.now()
        volume.holder, volume.device = instance, device
        volume.attached_at = self.clock.now() + self.times.attach
        volume.free_at, volume.detaching = None, False

    def detach(self, volume_id: str, instance: str) -> None:
        volume = self._visible(volume_id)
        if self._shown(volume).state != "in-use":
            raise CloudError("IncorrectState", f"Volume '{volume_id}' is in the 'available' state.")
        if volume.holder != instance:
            raise CloudError("InvalidAttachment.NotFound", f"{volume_id} is not attached to {instance}")
        volume.before, volume.changed_at = self._shown(volume), self.clock.now()
        volume.detaching = True
        volume.free_at = self.clock.now() + self.times.detach

    def tag_retired(self, volume_id: str, generation: int) -> None:
        self._visible(volume_id).tags[aws.RETIRED_TAG] = str(generation)

    def groups(self, run: str) -> list[Group]:
        return [Group(name, desired) for name, desired in self.capacity.items() if name.startswith(run)]

    def group_of(self, instance: str) -> str | None:
        return next(iter(self.capacity), None)

    def set_desired(self, group: str, capacity: int) -> None:
        self.capacity[group] = capacity

    def set_unhealthy(self, instance: str) -> None:
        self.instances[instance].health = "Unhealthy"

    def complete_hook(self, group: str, hook: str, instance: str) -> None:
        self.hooks_completed.append((group, hook, instance))

    def metric(self, run: str, name: str) -> None:
        self.metrics.append(name)

    # Inside.

    def _visible(self, volume_id: str) -> FakeVolume:
        found = self.all_volumes.get(volume_id)
        if found is None or found.visible_at > self.clock.now():
            raise CloudError("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
        return found

    def _told(self, volume: FakeVolume) -> Volume:
        shown = self._shown(volume)
        if volume.before is not None and self.clock.now() < volume.changed_at + self.times.stale:
            return volume.before
        return shown

    def _settle(self, volume: FakeVolume) -> None:
        if volume.free_at is not None and self.clock.now() >= volume.free_at:
            volume.holder = volume.device = volume.free_at = None
            volume.detaching = False

    def _shown(self, volume: FakeVolume) -> Volume:
        self._settle(volume)
        now = self.clock.now()
        attachment = None
        if volume.broken:
            state = volume.broken
        elif now < volume.ready_at:
            state = "creating"
        elif volume.holder is None:
            state = "available"
        else:
            state = "in-use"
            attachment = "attached" if now >= volume.attached_at else "attaching"
            if volume.detaching:
                attachment = "detaching"
        return Volume(
            volume.id,
            volume.spec.zone,
            state,
            volume.holder,
            attachment,
            volume.device,
            volume.spec.size_gib,
            volume.spec.snapshot,
            volume.tags,
        )

    def _photo(self, snapshot: FakeSnapshot) -> Snapshot:
        state = "pending"
        if self.clock.now() >= snapshot.ready_at:
            state = "error" if snapshot.fails else "completed"
        return Snapshot(snapshot.id, snapshot.volume, state, snapshot.started, snapshot.tags)
