"""The lease file on the volume: which machine writes here, and that it still does.

EBS attaches a volume to one machine, and the library's claims fence off a second trainer. The lease is for
the case that both see late: somebody detaches a volume by force from a machine that lives.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from holdfast_aws.world import Lease

NAME = ".holdfast-lease"


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def read(mount: Path, instance: str, boot: str, now: float) -> Lease | None:
    """None: there is none, or it is this machine's."""
    path = mount / NAME
    try:
        told = json.loads(path.read_text("utf-8"))
        lease = Lease(str(told["instance"]), str(told["boot"]), now - path.stat().st_mtime)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if (lease.instance, lease.boot) == (instance, boot) else lease


def take(mount: Path, instance: str, boot: str) -> None:
    path, new = mount / NAME, mount / f"{NAME}.new"
    with new.open("w", encoding="utf-8") as file:
        json.dump({"instance": instance, "boot": boot}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def renew(mount: Path) -> None:
    """It stays young. Needs no room on the volume: one that is full is no fault of the machine."""
    with (mount / NAME).open("rb") as file:
        os.utime(file.fileno())
        os.fsync(file.fileno())


def owner(mount: Path) -> tuple[str, str]:
    """Instance and boot id; of a file that cannot be read, nobody."""
    found = read(mount, "", "", 0)
    return (found.instance, found.boot) if found else ("", "")


def drop(mount: Path) -> None:
    (mount / NAME).unlink(missing_ok=True)
