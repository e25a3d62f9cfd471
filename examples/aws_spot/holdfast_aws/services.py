"""The run's service as systemd knows it, and whether this machine is on its way out."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_aws.commands import Runner
from holdfast_aws.metadata import Metadata
from holdfast_aws.stop import StopError

TRAINER = "holdfast.service"  # `holdfast supervise`, or a sweep


def busy(run: Runner) -> bool:
    """It trains, or will again by itself."""
    state = run(["systemctl", "show", TRAINER, "-p", "ActiveState"], 30).out.partition("=")[2]
    return state in ("active", "activating", "reloading")


def leaving(metadata: Metadata, say: Callable[[str], None]) -> bool:
    """Its group terminates this machine."""
    try:
        return metadata.get("autoscaling/target-lifecycle-state") == "Terminated"
    except StopError as stop:
        say(stop.message)
        return False
