"""What is on a device, with the real programs on files; and once on a loop device where this machine has one.

The kit page's scenario 21: a blank device gets a file system once, anything else never.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast_aws import filesystem, lease
from holdfast_aws.commands import Done, run
from holdfast_aws.linux_host import LinuxHost
from holdfast_aws.settings import Settings
from holdfast_aws.stop import StopError
from holdfast_aws.world import Mounted

SIZE = 64 << 20


def tools(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)} here")


def image(tmp_path: Path, size: int = SIZE) -> Path:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(size)
    return path


def put(at: int, data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at if at >= 0 else path.stat().st_size + at)
            file.write(data)

    return write


def by(*command: str) -> Callable[[Path], None]:
    return lambda path: subprocess.run([*command, str(path)], check=True, capture_output=True) and None


PARTITION = (
    bytes(446) + struct.pack("<B3sB3sII", 0, b"\0\2\0", 0x83, b"\0\0\0", 2048, 4096) + bytes(48) + b"\x55\xaa"
)
LUKS = (
    b"LUKS\xba\xbe\x00\x01"
    + b"".join(word.ljust(32, b"\0") for word in (b"aes", b"xts", b"sha256"))
    + bytes(400)
)

CONTENTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "random": (put(0, os.urandom(SIZE)), "unknown data"),
    "a byte at 1 MiB": (put(1 << 20, b"x"), "unknown data"),
    "a byte at the end": (put(-1, b"x"), "unknown data"),
    "ext4": (by("mkfs.ext4", "-q"), "ext4"),
    "xfs": (by("mkfs.xfs", "-q", "-d", "size=320m"), "xfs"),
    "swap": (by("mkswap", "-q"), "swap"),
    "LUKS": (put(0, LUKS), "crypto_LUKS"),
    "partitions": (put(0, PARTITION), "dos"),
}


@tools("blkid", "mkfs.ext4", "mkfs.xfs", "mkswap")
@pytest.mark.parametrize("name", CONTENTS)
def test_what_holds_something_is_never_blank(tmp_path: Path, name: str) -> None:
    write, expected = CONTENTS[name]
    path = image(tmp_path, 320 << 20 if name == "xfs" else SIZE)
    write(path)
    assert filesystem.examine(run, str(path)) == expected


@tools("blkid", "mkfs.ext4", "mkfs.xfs")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_blank_device_gets_a_file_system(tmp_path: Path, kind: str) -> None:
    path = image(tmp_path, 320 << 20)
    assert filesystem.examine(run, str(path)) == filesystem.BLANK
    filesystem.make(run, str(path), kind, "a-run-with-a-name-that-is-long")
    assert filesystem.examine(run, str(path)) == kind


def test_no_flag_overrides_the_programs_doubts() -> None:
    called: list[Sequence[str]] = []

    def runner(command: Sequence[str], _: float) -> Done:
        called.append(command)
        return Done(0, "")

    for kind in ("ext4", "xfs"):
        filesystem.make(runner, "/dev/x", kind, "run")
    assert not [word for command in called for word in command if word in ("-F", "-f", "-FF")]


@tools("mkfs.xfs")
def test_mkfs_that_refuses_is_for_a_person(tmp_path: Path) -> None:
    path = image(tmp_path, 320 << 20)
    filesystem.make(run, str(path), "xfs", "run")
    with pytest.raises(StopError, match=r"mkfs\.xfs") as stop:
        filesystem.make(run, str(path), "xfs", "run")
    assert stop.value.code == 78


def test_blkid_that_fails_says_nothing_about_the_device() -> None:
    for code in (1, 4, 127):
        with pytest.raises(StopError) as stop:
            filesystem.examine(lambda *_, code=code: Done(code, "broken"), "/dev/x")
        assert stop.value.code == 75
    assert filesystem.examine(lambda *_: Done(8, ""), "/dev/x") == "several signatures at once"


def test_fsck_decides_by_its_code() -> None:
    for code, good in ((0, True), (1, True), (2, False), (4, False), (8, False), (127, False)):
        assert filesystem.check(lambda *_, code=code: Done(code, ""), "/dev/x", "ext4") is good


MOUNTS = """22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
40 22 259:3 / /mnt/other rw - ext4 /dev/nvme2n1 rw
41 22 259:4 / /mnt/holdfast ro,noatime - ext4 /dev/nvme1n1 rw
42 22 259:4 / /mnt/with\\040space rw,noatime master:1 - xfs /dev/nvme3n1 rw
"""


def test_what_is_mounted_where() -> None:
    held = filesystem.mounted(MOUNTS, Path("/mnt/holdfast"))
    assert held is not None
    assert (held.device, held.read_only) == ("/dev/nvme1n1", True)
    spaced = filesystem.mounted(MOUNTS, Path("/mnt/with space"))
    assert spaced is not None
    assert not spaced.read_only
    assert filesystem.mounted(MOUNTS, Path("/mnt")) is None
    over = MOUNTS + "43 41 259:5 / /mnt/holdfast rw - ext4 /dev/nvme4n1 rw\n"
    assert filesystem.mounted(over, Path("/mnt/holdfast")).device == "/dev/nvme4n1"  # type: ignore[union-attr]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    path = image(tmp_path)
    made = run(["losetup", "--find", "--show", str(path)], 30)
    if os.geteuid() != 0 or made.code != 0:
        pytest.skip(f"no loop devices here: {made.out}")
    yield made.out
    run(["losetup", "--detach", made.out], 30)


@tools("mkfs.ext4")
def test_a_life_on_a_loop_device(tmp_path: Path, loop: str) -> None:
    """Blank, made, mounted, leased, verified; with the real programs but the library's."""
    told: list[Sequence[str]] = []

    def runner(command: Sequence[str], limit: float) -> Done:
        told.append(command)
        return Done(0, "ok") if command[0] == "holdfast" else run(command, limit)

    point = tmp_path / "mount point"
    settings = Settings("r1", mount=point, run_dirs=(point / "run",))
    host = LinuxHost(settings, "i-1", runner)
    try:
        assert host.examine(loop) == "blank"
        assert host.make_filesystem(loop) == "ext4"
        assert host.examine(loop) == "ext4"
        assert host.check(loop, "ext4")
        host.mount(loop, "ext4", read_only=False)
    except StopError as stop:
        pytest.skip(f"this machine may not mount: {stop.message}")
    try:
        assert host.mounted() == filesystem.Mounted(loop, False)
        assert host.lease() is None
        host.take_lease()
        assert host.lease() is None
        lease = LinuxHost(settings, "i-2", runner).lease()
        assert lease is not None
        assert lease.instance == "i-1"
        (point / "run").mkdir()
        (point / "run" / "step-000000000007-a0001.h5").touch()
        (point / "run" / "step-000000000003-a0002.h5").touch()
        host.unmount()
        assert host.mounted() is None
        host.mount(loop, "ext4", read_only=True)
        assert host.mounted() == filesystem.Mounted(loop, True)
        assert host.verify() == "good"
        assert told[-1] == ["holdfast", "verify", str(point / "run" / "step-000000000003-a0002.h5")]
        host.drop_lease()  # not on a volume that is mounted to be read
        assert LinuxHost(settings, "i-2", runner).lease() is not None
    finally:
        host.unmount()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "full. Grow it"),
        (errno.EDQUOT, "full. Grow it"),
        (errno.EROFS, "fsck"),
        (errno.EIO, "fsck"),
    ],
)
def test_a_volume_that_cannot_be_written_is_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def broken(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    host = LinuxHost(Settings("r1", mount=tmp_path), "i-1")
    monkeypatch.setattr(lease, "take", broken)
    monkeypatch.setattr(lease, "drop", broken)
    with pytest.raises(StopError, match=remedy) as stop:
        host.take_lease()
    assert stop.value.code == 78
    monkeypatch.setattr(host, "mounted", lambda: Mounted("/dev/x", False))
    host.drop_lease()  # it is given back all the same


def test_verify_judges_the_newest_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    settings = Settings("r1", mount=tmp_path, run_dirs=(directory,))

    def host(code: int, words: str = "") -> LinuxHost:
        return LinuxHost(settings, "i-1", lambda *_: Done(code, words))

    assert host(0).verify() == "nothing"
    (directory / "RUN_STATE.json").write_text('{"attempt": 1, "phase": "interrupted", "durable_step": 7}')
    assert "there is none" in host(0).verify()
    (directory / "step-000000000007-a0001.h5").touch()
    assert host(0).verify() == "good"
    assert "damaged" in host(1, "damaged  step…").verify()
    assert host(2).verify() != "good"
    for code, expected in ((127, 78), (124, 75), (125, 75), (126, 75), (137, 75), (143, 75), (-9, 75)):
        with pytest.raises(StopError) as stop:
            host(code).verify()
        assert stop.value.code == expected


def test_verify_has_the_time_that_a_cold_volume_takes(tmp_path: Path) -> None:
    directory, limits = tmp_path / "run", list[float]()
    directory.mkdir()
    with (directory / "step-000000000007-a0001.h5").open("wb") as file:
        file.truncate(300 << 30)

    def runner(_: Sequence[str], limit: float) -> Done:
        limits.append(limit)
        return Done(0, "")

    LinuxHost(Settings("r1", mount=tmp_path, run_dirs=(directory,)), "i-1", runner).verify()
    assert limits[0] > 300 * 2**30 / 60e6 * 2


def test_verify_wants_every_run_of_a_sweep(tmp_path: Path) -> None:
    directories = tuple(tmp_path / name for name in ("run-0", "run-1"))
    for directory in directories:
        directory.mkdir()
        (directory / "step-000000000007-a0001.h5").touch()
    settings = Settings("r1", mount=tmp_path, run_dirs=directories)
    bad = str(directories[1] / "step-000000000007-a0001.h5")
    host = LinuxHost(settings, "i-1", lambda command, _: Done(1 if command[-1] == bad else 0, "damaged"))
    assert host.verify().startswith("run-1/")


def test_verify_reads_the_volume_and_not_the_machines_own_drive(tmp_path: Path) -> None:
    """With --nvme a machine that moves the volume has an empty drive, or none of this run's checkpoints."""
    copy = tmp_path / "mount/run/step-000000000007-a0001.h5"
    copy.parent.mkdir(parents=True)
    copy.touch()
    fast = tmp_path / "fast"
    settings = Settings("r1", mount=tmp_path / "mount", run_dirs=(fast / "run",), fast=fast, nvme=True)
    host = LinuxHost(settings, "i-1", lambda command, _: Done(command[-1] == str(copy), "damaged"))
    assert "damaged" in host.verify()
