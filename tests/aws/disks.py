"""Volumes with bytes: a file for each volume and each snapshot of the strict double, and a kernel that shows them.

    disks = LoopDisks(root)
    with DiskAws(Kernel(root, disks)) as aws: …

`LoopDisks` are images on loop devices with real file systems; their power can be cut. `FolderDisks` are for where there
are none: a volume is a folder, a mount is a link to it, and a power cut loses nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import time
from pathlib import Path
from typing import Any, Protocol

from strict import Answer, Params, Real, StrictAws
from virtual import VirtualClock

from holdfast_aws.commands import run
from holdfast_aws.linux_host import LinuxHost
from holdfast_aws.world import Mounted

SIZE = 64 << 20  # bytes of a volume's image
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
AT_ONCE = 2  # nothing in memory reaches the device any more


class Disks(Protocol):
    def make(self, name: str) -> None: ...

    def copy(self, source: str, name: str) -> None: ...

    def show(self, name: str) -> str:
        """The device, or what stands for it."""

    def hide(self, name: str) -> None: ...

    def cut(self, mount: Path) -> None:
        """The power of what is mounted there: what was not written is lost."""

    def unplug(self, mount: Path) -> None:
        """Nothing is mounted there any more, whoever used it."""


class LoopDisks:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.loops: dict[str, str] = {}

    @staticmethod
    def why_not() -> str:
        spare = run(["losetup", "--find"], 30)
        if os.geteuid() != 0:
            return "only root has loop devices"
        if spare.code != 0 or not Path(spare.out).exists():
            return f"no loop devices here: {spare.out}"
        return "" if shutil.which("mkfs.ext4") else "no mkfs.ext4 here"

    def make(self, name: str) -> None:
        with (self.root / name).open("wb") as file:
            file.truncate(SIZE)

    def copy(self, source: str, name: str) -> None:
        done = run(["cp", "--sparse=always", str(self.root / source), str(self.root / name)], 60)
        assert done.code == 0, done.out

    def show(self, name: str) -> str:
        self.loops[name] = run(["losetup", "--find", "--show", str(self.root / name)], 30).out
        return self.loops[name]

    def hide(self, name: str) -> None:
        run(["losetup", "--detach", self.loops.pop(name)], 30)

    def cut(self, mount: Path) -> None:
        directory = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", AT_ONCE))
        finally:
            os.close(directory)

    def unplug(self, mount: Path) -> None:
        for _ in range(500):  # a process that was killed holds its files for a moment
            if not mount.is_mount() or run(["umount", str(mount)], 30).code == 0:
                return
            time.sleep(0.02)
        raise AssertionError(f"{mount} is still in use")


class FolderDisks:
    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, name: str) -> None:
        (self.root / name).mkdir()

    def copy(self, source: str, name: str) -> None:
        with contextlib.suppress(
            shutil.Error
        ):  # of a mounted one: what goes away meanwhile is not in the copy
            shutil.copytree(self.root / source, self.root / name)

    def show(self, name: str) -> str:
        return str(self.root / name)

    def hide(self, name: str) -> None:
        pass

    def cut(self, mount: Path) -> None:
        pass

    def unplug(self, mount: Path) -> None:
        mount.unlink(missing_ok=True)


class FolderHost(LinuxHost):
    """A machine whose volumes are folders: `files` is the file system, `read-only` says how it is mounted."""

    def examine(self, device: str) -> str:
        return "ext4" if Path(device, "files").is_dir() else "blank"

    def make_filesystem(self, device: str) -> str:
        Path(device, "files").mkdir()
        return "ext4"

    def check(self, device: str, content: str) -> bool:
        return True

    def mounted(self) -> Mounted | None:
        point = self._settings.mount
        if not point.is_symlink():
            return None
        volume = point.resolve().parent
        return Mounted(str(volume), (volume / "read-only").exists())

    def mount(self, device: str, content: str, read_only: bool) -> None:
        Path(device, "read-only").unlink(missing_ok=True)
        if read_only:
            Path(device, "read-only").touch()
        self._settings.mount.symlink_to(Path(device, "files"))

    def unmount(self) -> None:
        self._settings.mount.unlink(missing_ok=True)


class DiskAws(StrictAws):
    """A snapshot has the bytes of the moment in which it was asked for."""

    clock: Kernel

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        kernel.aws = self

    def ec2_CreateVolume(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = super().ec2_CreateVolume(params, real)
        disks, name = self.clock.disks, answer["VolumeId"]
        if not (self.clock.root / name).exists():  # the same token gives the same volume
            if "SnapshotId" in params:
                disks.copy(params["SnapshotId"], name)
            else:
                disks.make(name)
        return answer

    def ec2_CreateSnapshot(self, params: Params, real: Real) -> Answer:  # noqa: N802
        answer = super().ec2_CreateSnapshot(params, real)
        self.clock.disks.copy(params["VolumeId"], answer["SnapshotId"])
        return answer


class Kernel(VirtualClock):
    """While time passes it shows attached volumes: a device for each, and a link by its id."""

    def __init__(self, root: Path, disks: Any) -> None:
        super().__init__()
        self.root = root
        self.disks: Disks = disks
        self.shown: set[str] = set()
        self.aws: StrictAws
        (root / "dev/disk/by-id").mkdir(parents=True)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.aws.settle()
        for name, volume in self.aws.visible_volumes.items():
            held = volume.holder is not None and self.aws.instance(volume.holder)[0] == "running"
            if not held and name in self.shown:
                self._hide(name)
            elif held and name not in self.shown:
                self.shown.add(name)
                self._link(name).symlink_to(self.disks.show(name))

    def end(self) -> None:
        for name in list(self.shown):
            self._hide(name)

    def _hide(self, name: str) -> None:
        self.shown.remove(name)
        self._link(name).unlink()
        self.disks.hide(name)

    def _link(self, name: str) -> Path:
        return self.root / "dev/disk/by-id" / f"nvme-Amazon_Elastic_Block_Store_{name.replace('-', '')}"
