"""What a machine must know of its run, from the environment (/etc/holdfast/run.env, written at launch).

HF_RUN            the run's name: letters, digits, "-" and "_"; in tags, registers and the volume's label
HF_SIZE_GIB       size of the first volume (100)
HF_IOPS           gp3 (6000)
HF_THROUGHPUT     gp3, MiB/s (500)
HF_FILESYSTEM     ext4 or xfs (ext4)
HF_MOUNT          where the volume is mounted (/mnt/holdfast)
HF_RUN_DIRS       run directories, ":" between them; all must be complete to end (HF_MOUNT/run)
HF_NVME           1: run directories lie on the machine's own drives; each has a copy of its checkpoints at home (0)
HF_FAST           where the machine's own drives are mounted (/mnt/fast)
HF_S3             BUCKET/PREFIX/RUN: home is there, and the run has no volume (none)
HF_STANDBY        on-notice, on-rebalance, always: when a second machine boots, standby.py; never (never)
HF_NODES          machines that train together (1)
HF_GPU            1: the machine must see a GPU (1)
HF_DEV_ROOT       "/" unless a test says otherwise
HF_IMDS           http://169.254.169.254 unless a test says otherwise
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_aws.stop import HUMAN, StopError

IMDS = "http://169.254.169.254"


@dataclass(frozen=True)
class Settings:
    run: str
    size_gib: int = 100
    iops: int = 6000
    throughput: int = 500
    filesystem: str = "ext4"
    mount: Path = Path("/mnt/holdfast")
    run_dirs: tuple[Path, ...] = (Path("/mnt/holdfast/run"),)
    nodes: int = 1
    gpu: bool = True
    nvme: bool = False
    fast: Path = Path("/mnt/fast")
    s3: str = ""
    standby: str = "never"
    dev_root: Path = Path("/")
    imds: str = IMDS

    @property
    def two_tiers(self) -> bool:
        """The run directories die with the machine; what counts is at home."""
        return self.nvme or bool(self.s3)

    @property
    def volume_dirs(self) -> tuple[Path, ...]:
        """Directories on the run's volume that hold its checkpoints; none without a volume."""
        if self.s3:
            return ()
        if not self.nvme:
            return self.run_dirs
        return tuple(self.mount / each.relative_to(self.fast) for each in self.run_dirs)


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Stop 78 for what nobody can mean."""
    run = environment.get("HF_RUN", "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", run):
        raise StopError(
            HUMAN, f"HF_RUN is {run!r}: name the run in /etc/holdfast/run.env (letters, digits, - and _)"
        )
    filesystem = environment.get("HF_FILESYSTEM", "ext4")
    if filesystem not in ("ext4", "xfs"):
        raise StopError(HUMAN, f"HF_FILESYSTEM is {filesystem!r}: ext4 or xfs")
    mount = Path(environment.get("HF_MOUNT", "/mnt/holdfast"))
    run_dirs = environment.get("HF_RUN_DIRS") or str(mount / "run")

    def whole(name: str, default: int) -> int:
        text = environment.get(name) or str(default)
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise StopError(HUMAN, f"{name} is {text!r}: a whole number above 0")
        return int(text)

    return Settings(
        run=run,
        size_gib=whole("HF_SIZE_GIB", 100),
        iops=whole("HF_IOPS", 6000),
        throughput=whole("HF_THROUGHPUT", 500),
        filesystem=filesystem,
        mount=mount,
        run_dirs=tuple(Path(directory) for directory in run_dirs.split(":")),
        nodes=whole("HF_NODES", 1),
        gpu=environment.get("HF_GPU", "1") == "1",
        nvme=environment.get("HF_NVME", "0") == "1",
        fast=Path(environment.get("HF_FAST", "/mnt/fast")),
        s3=environment.get("HF_S3", ""),
        standby=environment.get("HF_STANDBY") or "never",
        dev_root=Path(environment.get("HF_DEV_ROOT", "/")),
        imds=environment.get("HF_IMDS", IMDS),
    )
