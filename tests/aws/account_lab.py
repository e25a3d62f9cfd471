"""A user's account on moto, with what moto lacks: a stack with a run, its network, and a record of all calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import plans
from moto import mock_aws

from holdfast_aws.account import Account
from holdfast_aws.plan import LaunchPlan

REGION = "us-east-1"
READS = ("Describe", "Get", "Head", "List", "Simulate")


@dataclass
class Lab:
    account: Account
    calls: list[str]  # the operations that changed something
    stand_ins: dict[str, Any] = field(default_factory=dict)  # service -> a client instead of moto's
    clock: list[float] = field(default_factory=lambda: [0.0])
    said: list[str] = field(default_factory=list)
    image: str = ""

    def client(self, name: str) -> Any:
        return self.account.client(name)

    def plan(self, **changes: Any) -> LaunchPlan:
        return plans.plan(machine_image=self.image, vpc="", subnets=(), **changes)

    def another(self, *, dry_run: bool = False) -> Account:
        """The account again, as the next command would see it."""
        old = self.account
        return Account(old.client, dry_run=dry_run, say=self.said.append, sleep=old.sleep, now=old.now)


@contextmanager
def lab() -> Iterator[Lab]:
    calls: list[str] = []
    with mock_aws():
        session = boto3.Session(region_name=REGION)

        def record(model: Any, **_: Any) -> None:
            if not model.name.startswith(READS):
                calls.append(model.name)

        session.events.register("before-call", record)
        made = Lab(Account(lambda name: None), calls)
        made.clock[0] = 1_800_000_000.0
        made.image = boto3.client("ec2", region_name=REGION).register_image(Name="ours")["ImageId"]

        def client(name: str) -> Any:
            return made.stand_ins.get(name) or session.client(name)

        def sleep(seconds: float) -> None:
            made.clock[0] += seconds

        made.account = Account(client, say=made.said.append, sleep=sleep, now=lambda: made.clock[0])
        yield made
