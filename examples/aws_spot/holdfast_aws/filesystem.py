"""What is on a device, and how to mount it. A device is called blank only when not a byte says otherwise.

Errors: StopError 78 with the program's words, for what a second try cannot mend.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast_aws.commands import Runner
from holdfast_aws.stop import HUMAN, RETRY, StopError
from holdfast_aws.world import Mounted

BLANK = "blank"
UNKNOWN = "unknown data"
HEAD = 16 << 20  # bytes that must be zero at the device's begin …
TAIL = 1 << 20  # … and at its end
LABEL = {"ext4": 16, "xfs": 12}  # longest
OPTIONS = "noatime,nodev,nosuid"


def examine(run: Runner, device: str) -> str:
    """ext4, xfs, another signature's name, `BLANK` or `UNKNOWN`."""
    done = run(["blkid", "-p", "-o", "export", device], 60)
    if done.code == 0:
        found = dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)
        return found.get("TYPE") or found.get("PTTYPE") or UNKNOWN
    if done.code == 8:
        return "several signatures at once"
    if done.code != 2:  # 2: no signature, which random data has neither
        raise StopError(RETRY, f"blkid {device}: {done.out or done.code}")
    return BLANK if _zeros(device) else UNKNOWN


def _zeros(device: str) -> bool:
    block = 1 << 20
    with Path(device).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for begin, end in ((0, min(HEAD, size)), (max(0, size - TAIL), size)):
            file.seek(begin)
            left = end - begin
            while left > 0:
                data = file.read(min(block, left))
                if not data or data.count(0) != len(data):
                    return False
                left -= len(data)
    return size > 0


def make(run: Runner, device: str, kind: str, label: str) -> None:
    """On a blank device. Never with a flag that overrides the program's own doubts."""
    done = run([f"mkfs.{kind}", "-q", "-L", label[: LABEL[kind]], device], 1800)
    if done.code != 0:
        raise StopError(HUMAN, f"mkfs.{kind} {device}: {done.out or done.code}")


def check(run: Runner, device: str, kind: str) -> bool:
    """Repairs what a lost machine leaves behind; xfs does so when it is mounted."""
    if kind == "xfs":
        return True
    return run([f"fsck.{kind}", "-p", device], 1800).code in (0, 1)


def mount(run: Runner, device: str, kind: str, point: Path, read_only: bool) -> None:
    options = f"{'ro' if read_only else 'rw'},{OPTIONS}"
    if kind == "ext4":
        options += ",errors=remount-ro"
    point.mkdir(parents=True, exist_ok=True)
    done = run(["mount", "-t", kind, "-o", options, device, str(point)], 600)
    if done.code != 0:
        raise StopError(HUMAN, f"mount {device} {point}: {done.out or done.code}")


def unmount(run: Runner, point: Path) -> None:
    done = run(["umount", str(point)], 600)
    if done.code != 0:
        raise StopError(RETRY, f"umount {point}: {done.out or done.code}; fuser -vm {point} names the user")


def mounted(mountinfo: str, point: Path) -> Mounted | None:
    """From the text of /proc/self/mountinfo: what a path below the point would reach."""
    found = None
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 10 or "-" not in fields or _plain(fields[4]) != str(point):
            continue
        source = fields[fields.index("-") + 2]
        found = Mounted(_plain(source), "ro" in fields[5].split(","))
    return found


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
