"""A snapshot ahead of time: hourly, and when the machine is at risk.

Snapshots are incremental, so it makes a move's own snapshot short. It is never restored while its source
exists: it may be older than the newest checkpoint. Only the newest one helps, and each keeps what the hour has
overwritten. So the register `leads` lists them, and those before the newest complete one are deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_aws.cloud import (
    GENERATION_TAG,
    LEAD_TAG,
    RUN_TAG,
    Clock,
    Cloud,
    CloudError,
    Snapshot,
    of_another_service,
)
from holdfast_aws.registers import Registers
from holdfast_aws.stop import OK, RETRY

APART = 900.0  # seconds; each costs money, and one that is pending slows the next


def lead_snapshot(
    cloud: Cloud, clock: Clock, run: str, instance: str, say: Callable[[str], None] = print
) -> int:
    """0 also when there was nothing to do; 75 when AWS did not do it."""
    registers = Registers(cloud, run)
    try:
        book = registers.read()
        current = book.current
        volume = cloud.volume(str(current.volume)) if current is not None else None
        if current is None or volume is None or volume.holder != instance:
            say("no snapshot: this machine does not hold the run's volume")
            return OK
        shown = cloud.snapshots(run)
        mine = [s for s in shown if s.volume == volume.id]
        if any(s.state == "pending" or clock.now() - s.started < APART for s in mine):
            say(f"no snapshot: one of {volume.id} is young enough")
            return OK
        tags = {RUN_TAG: run, GENERATION_TAG: str(current.number), LEAD_TAG: "1"}
        made = cloud.create_snapshot(volume.id, tags, f"holdfast {run}: ahead of a move")
        registers.set_leads([*book.leads, made])
        say(f"snapshot {made} of {volume.id} begins")
        gone = _delete(cloud, superseded(book.leads, shown), say)
        # What is not shown was deleted by somebody else.
        names = {snapshot.id for snapshot in shown} - gone
        registers.set_leads([*(name for name in book.leads if name in names), made])
    except CloudError as error:
        say(f"no snapshot, or an old one was not deleted: {error}")
        return RETRY
    return OK


def superseded(leads: tuple[str, ...], shown: list[Snapshot]) -> list[str]:
    """Of this list, and with our tag, those that began before the newest complete one."""
    ours = [s for s in shown if s.id in leads and LEAD_TAG in s.tags and not of_another_service(s.tags)]
    complete = max((s.started for s in ours if s.state == "completed"), default=0.0)
    return [s.id for s in ours if s.started < complete]


def _delete(cloud: Cloud, names: list[str], say: Callable[[str], None]) -> set[str]:
    gone = set()
    for name in names:
        try:
            cloud.delete_snapshot(name)
            gone.add(name)
        except CloudError as error:  # the next hour tries again
            say(f"{name} was not deleted: {error}")
    return gone
