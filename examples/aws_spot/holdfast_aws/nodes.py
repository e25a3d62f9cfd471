"""`hf nodes`: which of several nodes this machine is. Every node decides alike, from what EC2 shows of the run.

Prints the words for `holdfast launch`: --nnodes 4 --node-rank 2 --master 10.0.0.7:29500. The oldest machine is node 0.
It waits until all are there; a node that was lost is replaced by its group, and the ranks are dealt anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_aws.cloud import RUN_TAG, Clock
from holdfast_aws.stop import RETRY, StopError

PORT = 29500
POLL = 5.0  # seconds
WAIT = 600.0  # `holdfast supervise` takes a life of 20 min for progress, and would try for ever


@dataclass(frozen=True)
class Node:
    instance: str
    launched: float  # Unix seconds
    address: str


def words(nodes: Sequence[Node], me: str, count: int) -> list[str] | None:
    """None: not all are there yet. More than `count` (one is on its way out): the oldest count."""
    oldest = sorted(nodes, key=lambda node: (node.launched, node.instance))[:count]
    names = [node.instance for node in oldest]
    if len(oldest) < count or me not in names:
        return None
    master = f"{oldest[0].address}:{PORT}"
    return ["--nnodes", str(count), "--node-rank", str(names.index(me)), "--master", master]


def wait_for_all(list_nodes: Callable[[], Sequence[Node]], clock: Clock, me: str, count: int) -> list[str]:
    """Stop 75 when they do not all come."""
    until = clock.now() + WAIT
    while True:
        nodes = list_nodes()
        found = words(nodes, me, count)
        if found is not None:
            return found
        if clock.now() >= until:
            raise StopError(
                RETRY, f"{len(nodes)} of {count} nodes after {WAIT / 60:.0f} min: spot gives no more now"
            )
        clock.sleep(POLL)


def of_run(ec2: Any, run: str) -> list[Node]:
    filters = [
        {"Name": f"tag:{RUN_TAG}", "Values": [run]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    return [
        Node(one["InstanceId"], one["LaunchTime"].timestamp(), one["PrivateIpAddress"])
        for page in pages
        for reservation in page["Reservations"]
        for one in reservation["Instances"]
    ]
