"""What the user wants to launch. The template and the user data are functions of this alone.

Errors: UsageError, which names the option.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast_aws import sweep_file
from holdfast_aws.policy import instance_policy
from holdfast_aws.standby import NEVER, ON_NOTICE, STRATEGIES
from holdfast_aws.sweep_file import UsageError as UsageError

# Deep Learning Base AMI: driver, Docker, EFA. The parameter names the newest; `hf-aws check` says which that is.
OPEN_DRIVER_IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)

# Several types each: the strategy chooses among their pools. The first is asked first where on-demand is bought.
TYPES = {
    "a100": ("p4d.24xlarge", "p4de.24xlarge"),
    "b200": ("p6-b200.48xlarge",),
    "h100": ("p5.4xlarge", "p5.48xlarge"),
    "l4": ("g6.xlarge", "g6.2xlarge", "g6.4xlarge"),
    "l40s": ("g6e.xlarge", "g6e.2xlarge", "g6e.4xlarge"),
    "rtx-pro": ("g7e.2xlarge", "g7e.4xlarge", "g7e.8xlarge"),
    "any": ("g5.xlarge", "g6.xlarge", "g4dn.xlarge", "g5.2xlarge", "g6.2xlarge", "g4dn.2xlarge"),
}

RUN_DIR_MARK = "{run_dir}"
MOUNT = "/mnt/holdfast"
FAST = "/mnt/fast"  # the machine's own drives; they die with it
EBS, S3 = "ebs", "s3"
OF_THE_VOLUME = {
    "size_gib": "--size",
    "iops": "--iops",
    "throughput": "--throughput",
    "filesystem": "--filesystem",
}


@dataclass(frozen=True)
class LaunchPlan:
    run: str
    command: tuple[str, ...]  # "{run_dir}" in it becomes the run directory
    types: tuple[str, ...] = TYPES["any"]
    vpc: str = ""
    subnets: tuple[str, ...] = ()
    machine_image: str = OPEN_DRIVER_IMAGE  # an AMI, or the SSM parameter that names one
    image: str = ""  # a container image by digest; "" when the machine image has the programs
    setup: str = ""  # a shell command, once a boot, before the volume is attached
    size_gib: int = 100
    iops: int = 6000
    throughput: int = 500
    root_gib: int = 100
    filesystem: str = "ext4"
    fallback_minutes: int = 0  # 0: wait for spot for ever
    rebalance: bool = False  # CapacityRebalance: pays for a second machine that waits
    strategy: str = "price-capacity-optimized"
    nodes: int = 1
    efa: tuple[int, ...] = ()  # network cards of a node with EFA, as EC2 describes its types; (): TCP
    shared: str = ""  # what several nodes mount instead of an EBS volume, such as fs-1.fsx…@tcp:/x
    slices: int = 0  # MIG slices; a run at a time on each
    sweep: str = ""  # text of the file whose runs train on the slices
    gpu: bool = True
    remote_shell: bool = False  # AWS's own session manager, for a look and for `rehearse`
    home: str = (
        EBS  # where checkpoints survive the machine: ebs, s3 (bucket.py names it), s3://BUCKET[/PREFIX]
    )
    region: str = ""  # of the run and of its bucket; only with S3
    standby: str = ""  # when a second machine boots (standby.py); "": on-notice where home is S3, else never
    nvme: bool = False  # commits go to the machine's own drives, copies of them go home
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def run_dirs(self) -> tuple[str, ...]:
        return tuple(f"{FAST if self.nvme else MOUNT}/{name}" for name in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the run directories, and of their places in S3."""
        return tuple(f"runs/{name}" for name in sweep_file.names(self.sweep)) if self.slices else ("run",)

    @property
    def in_s3(self) -> bool:
        return self.home != EBS

    @property
    def stands_by(self) -> str:
        return self.standby or (ON_NOTICE if self.in_s3 and not self.rebalance else NEVER)

    @property
    def s3(self) -> str:
        """BUCKET/PREFIX/RUN. Two runs never share a place: the run's name always ends it."""
        if not self.home.startswith("s3://"):
            raise UsageError("--home s3: the bucket's name is not known here; write --home s3://BUCKET")
        return f"{self.home[len('s3://') :].rstrip('/')}/{self.run}"

    @property
    def groups(self) -> tuple[str, ...]:
        return (
            (spot_group(self.run), on_demand_group(self.run))
            if self.fallback_minutes
            else (spot_group(self.run),)
        )

    @property
    def policy(self) -> dict[str, Any]:
        """What a machine of the run may do."""
        s3 = self.s3 if self.in_s3 else ""
        names = ("runs/*",) if self.slices else self.names  # a template may have 51,200 bytes
        standby = self.stands_by != NEVER
        return instance_policy(self.run, pull_from_ecr=self.from_ecr, s3=s3, names=names, standby=standby)

    @property
    def from_ecr(self) -> bool:
        return bool(re.match(r"[0-9]{12}\.dkr\.ecr\.", self.image))


def stack_of(run: str) -> str:
    return f"holdfast-{run.replace('_', '-')}"


def spot_group(run: str) -> str:
    return f"holdfast-{run}-spot"


def on_demand_group(run: str) -> str:
    return f"holdfast-{run}-on-demand"


def _check_home(plan: LaunchPlan, need: Callable[[bool, str], None]) -> None:
    need(
        plan.home in (EBS, S3)
        or bool(re.fullmatch(r"s3://[a-z0-9][a-z0-9-]{1,61}[a-z0-9](/[A-Za-z0-9_=-]+)*/?", plan.home)),
        f"--home {plan.home}: ebs, s3, or s3://BUCKET/PREFIX of letters, digits, - and _ (a bucket without dots)",
    )
    need(
        not (plan.in_s3 or plan.nvme) or plan.nodes == 1,
        "--nodes has neither --home s3 nor --nvme: the nodes share one file system, which survives them",
    )
    need(plan.stands_by in STRATEGIES, f"--standby {plan.standby}: {', '.join(STRATEGIES)}")
    need(
        plan.stands_by == NEVER or plan.in_s3,
        f"--standby {plan.standby} needs --home s3: a volume is attached to one machine, so a second could only wait",
    )
    need(
        plan.stands_by == NEVER or not plan.rebalance,
        f"--standby {plan.standby} and --rebalance both start a second machine: choose one",
    )
    need(
        not (plan.in_s3 and plan.fallback_minutes) or plan.stands_by != NEVER,
        "--home s3 --fallback-minutes needs a --standby, so neither `--standby never` nor --rebalance: "
        "nothing else keeps the spot and the on-demand machine from taking the run from each other",
    )
    defaults = {field.name: field.default for field in fields(plan)}
    spare = [option for name, option in OF_THE_VOLUME.items() if getattr(plan, name) != defaults[name]]
    need(
        not plan.in_s3 or not spare,
        f"--home s3 makes no volume, so {', '.join(spare)} means nothing: leave it out (--root-size is the disk's)",
    )


def check(plan: LaunchPlan) -> LaunchPlan:
    """The plan, if it can be launched."""

    def need(good: bool, what: str) -> None:
        if not good:
            raise UsageError(what)

    need(
        bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", plan.run)),
        f"the run's name {plan.run!r}: letters, digits, - and _, 64 at most",
    )
    need(
        bool(plan.command),
        "which command trains? It goes last: hf-aws up RUN --image IMAGE -- ./train --lr 0.1",
    )
    need(
        any(RUN_DIR_MARK in word for word in plan.command),
        f"the command names no run directory: write {RUN_DIR_MARK} where your trainer wants it, "
        f"such as --checkpoint-dir {RUN_DIR_MARK}",
    )
    need(
        not any("\n" in word or "\0" in word for word in plan.command),
        "the command has a line break in a word",
    )
    need(
        not plan.image or bool(re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", plan.image)),
        f"--image {plan.image}: name it by digest, image@sha256:…; every machine of the run must train the same",
    )
    need(
        bool(re.fullmatch(r"ami-[0-9a-f]{8,17}|/[A-Za-z0-9_./-]+", plan.machine_image)),
        f"--ami {plan.machine_image}: an AMI, or an SSM parameter that names one",
    )
    need(bool(plan.types), "--types: at least one instance type")
    need(plan.filesystem in ("ext4", "xfs"), f"--filesystem {plan.filesystem}: ext4 or xfs")
    # gp3, by EC2's model of CreateVolume.
    need(1 <= plan.size_gib <= 65536, f"--size {plan.size_gib}: from 1 to 65536 GiB")
    need(3000 <= plan.iops <= 80000, f"--iops {plan.iops}: from 3000 to 80000")
    need(125 <= plan.throughput <= 2000, f"--throughput {plan.throughput}: from 125 to 2000 MiB/s")
    need(
        plan.throughput * 4 <= plan.iops, f"--throughput {plan.throughput} needs --iops {plan.throughput * 4}"
    )
    need(plan.iops <= 500 * plan.size_gib, f"--iops {plan.iops} needs --size {-(-plan.iops // 500)}")
    need(
        plan.strategy in ("price-capacity-optimized", "capacity-optimized"),
        f"--strategy {plan.strategy}: price-capacity-optimized or capacity-optimized",
    )
    need(0 <= plan.fallback_minutes <= 1440, f"--fallback-minutes {plan.fallback_minutes}: from 0 to 1440")
    need(1 <= plan.nodes <= 64, f"--nodes {plan.nodes}: from 1 to 64")
    need(
        (plan.nodes > 1) == bool(plan.shared),
        "--nodes and --shared go together: an EBS volume is attached to one machine, several need a file system",
    )
    need(
        plan.nodes == 1 or not plan.image,
        "--nodes has no --image: `holdfast launch` runs on the machines themselves; install the programs by --setup",
    )
    need(plan.nodes == 1 or len(plan.subnets) <= 1, "--nodes: one subnet, EFA does not cross zones")
    need(
        plan.nodes == 1 or not plan.fallback_minutes,
        "--nodes has no --fallback-minutes: a group is spot or is not",
    )
    need(
        0 <= plan.slices <= 7 and (not plan.slices or plan.nodes == 1),
        "--mig-slices: from 1 to 7, on one node",
    )
    need(
        bool(plan.slices) == bool(plan.sweep),
        "--mig-slices and --sweep go together: the runs of the file train on the slices, one on each",
    )
    if plan.slices:
        sweep_file.check(plan.sweep, plan.command)
    _check_home(plan, need)
    return plan
