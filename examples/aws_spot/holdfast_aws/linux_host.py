"""The machine itself, for the state machine: devices, file systems, mounts, and the library's verify."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from holdfast_aws import device, filesystem, lease
from holdfast_aws.commands import MISSING, Runner, run
from holdfast_aws.run_state import checkpoints, held_checkpoints
from holdfast_aws.settings import Settings
from holdfast_aws.stop import HUMAN, RETRY, StopError
from holdfast_aws.world import Lease, Mounted

BAD = (1, 2)  # what `holdfast verify` says of a checkpoint: damaged, or not to be read
VERIFY = 3600.0  # seconds, and those that the checkpoint takes at …
SLOWEST = 10e6  # bytes a second


class LinuxHost:
    """Implements host.Host."""

    def __init__(self, settings: Settings, instance: str, runner: Runner = run) -> None:
        self._settings = settings
        self._instance = instance
        self._run = runner
        self._boot = lease.boot_id()

    def find_device(self, volume_id: str, label: str) -> tuple[str, ...]:
        return device.find_device(self._settings.dev_root, volume_id, label)

    def examine(self, device: str) -> str:
        return filesystem.examine(self._run, device)

    def make_filesystem(self, device: str) -> str:
        filesystem.make(self._run, device, self._settings.filesystem, self._settings.run)
        return self._settings.filesystem

    def check(self, device: str, content: str) -> bool:
        return filesystem.check(self._run, device, content)

    def mounted(self) -> Mounted | None:
        return filesystem.mounted(Path("/proc/self/mountinfo").read_text("utf-8"), self._settings.mount)

    def mount(self, device: str, content: str, read_only: bool) -> None:
        filesystem.mount(self._run, device, content, self._settings.mount, read_only)

    def unmount(self) -> None:
        if self.mounted() is not None:
            os.sync()
            filesystem.unmount(self._run, self._settings.mount)

    def verify(self) -> str:
        """The newest checkpoint of each directory on the volume, every byte."""
        seen = "nothing"
        for directory in self._settings.volume_dirs:
            files = checkpoints(directory)
            if not files:
                if held_checkpoints(directory):
                    return f"{directory.name} speaks of checkpoints, but there is none"
                continue
            # A volume from a snapshot is filled from S3 as it is read.
            limit = VERIFY + files[0].stat().st_size / SLOWEST
            done = self._run(["holdfast", "verify", str(files[0])], limit)
            if done.code not in (0, *BAD):  # it has not judged: Docker, a signal, too little memory
                raise StopError(
                    HUMAN if done.code == MISSING else RETRY, f"holdfast verify: {done.out or done.code}"
                )
            if done.code != 0:
                last = done.out.splitlines()[-1:] or [f"code {done.code}"]
                return f"{directory.name}/{files[0].name}: {last[0]}"
            seen = "good"
        return seen

    def lease(self) -> Lease | None:
        return lease.read(self._settings.mount, self._instance, self._boot, time.time())

    def take_lease(self) -> None:
        mount = self._settings.mount
        try:
            lease.take(mount, self._instance, self._boot)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = (
                "the volume is full. Grow it (aws ec2 modify-volume, then resize2fs or xfs_growfs), or delete what "
                "the run does not need"
                if full
                else "its file system has errors. Repair it with fsck, or restore a snapshot"
            )
            run = self._settings.run
            raise StopError(
                HUMAN,
                f"{mount} cannot be written ({error.strerror}), so nothing trains: {remedy}; then hf-aws up {run}",
            ) from error

    def drop_lease(self) -> None:
        held = self.mounted()
        if held is not None and not held.read_only:
            # A volume that takes no writes must be given back, too; its lease grows old.
            with contextlib.suppress(OSError):
                lease.drop(self._settings.mount)
