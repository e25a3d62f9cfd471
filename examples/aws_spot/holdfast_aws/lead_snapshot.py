"""A snapshot ahead of time: hourly, and when the machine is at risk.

Snapshots are incremental, so it makes a move's own snapshot short. It is never restored while its source
exists: it may be older than the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_aws.cloud import GENERATION_TAG, LEAD_TAG, RUN_TAG, Clock, Cloud, CloudError
from holdfast_aws.registers import Registers
from holdfast_aws.stop import OK, RETRY

APART = 900.0  # seconds; each costs money, and one that is pending slows the next


def lead_snapshot(
    cloud: Cloud, clock: Clock, run: str, instance: str, say: Callable[[str], None] = print
) -> int:
    """0 also when there was nothing to do; 75 when AWS did not do it."""
    try:
        current = Registers(cloud, run).read().current
        volume = cloud.volume(str(current.volume)) if current is not None else None
        if current is None or volume is None or volume.holder != instance:
            say("no snapshot: this machine does not hold the run's volume")
            return OK
        mine = [s for s in cloud.snapshots(run) if s.volume == volume.id]
        if any(s.state == "pending" or clock.now() - s.started < APART for s in mine):
            say(f"no snapshot: one of {volume.id} is young enough")
            return OK
        tags = {RUN_TAG: run, GENERATION_TAG: str(current.number), LEAD_TAG: "1"}
        made = cloud.create_snapshot(volume.id, tags, f"holdfast {run}: ahead of a move")
    except CloudError as error:
        say(f"no snapshot: {error}")
        return RETRY
    say(f"snapshot {made} of {volume.id} begins")
    return OK
