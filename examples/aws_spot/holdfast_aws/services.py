"""The run's trainers as systemd knows them, and whether this machine is on its way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast_aws.commands import Runner
from holdfast_aws.metadata import Metadata
from holdfast_aws.settings import Settings
from holdfast_aws.stop import StopError


def workers(settings: Settings) -> list[tuple[str, Path]]:
    """Each service with its run directory."""
    directories = settings.run_dirs
    if len(directories) == 1:
        return [("holdfast.service", directories[0])]
    return [(f"holdfast@{number}.service", each) for number, each in enumerate(directories)]


def busy(run: Runner, settings: Settings) -> list[str]:
    """The services that train, or will again by themselves."""
    states = {
        service: run(["systemctl", "show", service, "-p", "ActiveState"], 30).out.partition("=")[2]
        for service, _ in workers(settings)
    }
    return [service for service, state in states.items() if state in ("active", "activating", "reloading")]


def leaving(metadata: Metadata, say: Callable[[str], None]) -> bool:
    """Its group terminates this machine."""
    try:
        return metadata.get("autoscaling/target-lifecycle-state") == "Terminated"
    except StopError as stop:
        say(stop.message)
        return False
