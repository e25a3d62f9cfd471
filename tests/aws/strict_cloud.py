"""The strict double behind the machine's real calls, in the shape that lab.py wants. Close it, or use it in `with`."""

from __future__ import annotations

import functools
from typing import Any

import boto3
from fake_cloud import Content, Times
from strict import REGION, StrictAws
from virtual import VirtualClock

from holdfast_aws.aws import Aws


@functools.lru_cache
def _aws() -> Aws:
    return Aws(REGION)  # making clients takes longer than a scenario


@functools.lru_cache
def _ec2() -> Any:
    return boto3.client("ec2", region_name=REGION)


class StrictCloud:
    def __init__(self, clock: VirtualClock, times: Times) -> None:
        self.clock = clock
        self.times = times
        self.strict = StrictAws(clock, times)
        self.strict.__enter__()
        self._aws = _aws()

    def __getattr__(self, method: str) -> Any:
        return getattr(self._aws, method)

    def __enter__(self) -> StrictCloud:
        return self

    def __exit__(self, *_: object) -> None:
        self.strict.__exit__()

    def launch(self, zone: str) -> str:
        made = _ec2().run_instances(
            ImageId="ami-12345678", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone}
        )
        name: str = made["Instances"][0]["InstanceId"]
        return name

    def terminate(self, instance: str) -> None:
        _ec2().terminate_instances(InstanceIds=[instance])

    def content(self, volume: str) -> Content:
        return self.strict.visible_volumes[volume].content

    def ids(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.strict.visible_volumes), frozenset(self.strict.visible_snapshots)

    def holder_of(self, volume: str) -> str | None:
        self.strict.settle()
        return self.strict.visible_volumes[volume].holder

    def plugged_into(self, volume: str) -> str | None:
        held = self.strict.visible_volumes[volume]
        there = self.clock.now() >= held.attached_at and not held.detaching
        return self.holder_of(volume) if there else None

    @property
    def snapshot_fails(self) -> int:
        return self.strict.snapshot_fails

    @snapshot_fails.setter
    def snapshot_fails(self, count: int) -> None:
        self.strict.snapshot_fails = count

    @property
    def volume_limit(self) -> int:
        return self.strict.quotas.volumes

    @volume_limit.setter
    def volume_limit(self, count: int) -> None:
        self.strict.quotas.volumes = count
