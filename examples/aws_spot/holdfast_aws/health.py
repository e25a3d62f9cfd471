"""Does the worker work? Not: is the machine up. `hf health` runs every 30 seconds.

It looks at the step in the run's ledger, at the GPU, at the kernel's log and at the volume. The first trouble
restarts the worker's service. A second one within an hour tells the group that this instance is Unhealthy,
and the group replaces it; the third machine in a row without a checkpoint is parked.

When the group already terminates this instance, it stops the service (the trainer commits), gives the volume back and
lets the group go on.

While all is well it makes no call to AWS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast_aws import lease
from holdfast_aws.cloud import HOOK, Clock, Cloud, CloudError
from holdfast_aws.commands import Runner
from holdfast_aws.metadata import Metadata
from holdfast_aws.registers import Registers
from holdfast_aws.services import TRAINER, leaving
from holdfast_aws.settings import Settings
from holdfast_aws.stop import OK, RETRY
from holdfast_aws.worker import Progress, read_progress

HOUR = 3600.0
IN_A_ROW = 3  # machines that were given up, before a person must look; so many a node
XID = re.compile(r"NVRM: Xid \([^)]*\): ([0-9]+)")
# ECC that cannot be corrected, a GPU that fell off the bus, NVLink, GSP. Others are the program's own errors.
FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 94, 95, 119, 120, 140})


@dataclass(frozen=True)
class Evidence:
    """Of one run."""

    now: float  # Unix seconds
    active_for: float | None = None  # seconds since its service became active; None: it is not
    progress: Progress | None = None
    gpu: str = ""  # trouble, in words
    kernel: str = ""
    volume: str = ""


@dataclass
class Memory:
    """Kept in /run: a reboot is a new beginning."""

    restarted: dict[str, float] = field(default_factory=dict)  # service -> Unix seconds
    looked: float = 0.0  # at the kernel's log


def trouble_of(evidence: Evidence) -> str:
    """In words; "" when all is well, or the service is not active (then systemd acts)."""
    if evidence.active_for is None:
        return ""
    for trouble in (evidence.gpu, evidence.kernel, evidence.volume):
        if trouble:
            return trouble
    progress = evidence.progress
    if progress is None or progress.last is None:
        return ""
    silent = evidence.now - progress.last
    if silent > evidence.active_for:
        return ""  # the ledger is of the service's life before: it starts
    if progress.standing >= progress.limit:
        return f"step {progress.step} has not moved for {progress.standing:.0f} s"
    if silent >= progress.limit:
        return f"the worker has said nothing for {silent:.0f} s"
    return ""


def trouble_of_all(runs: Sequence[Evidence]) -> str:
    """Of the service: while one run of a sweep works, each other one is its own supervisor's (--stall-timeout)."""
    troubles = [(trouble_of(run), run) for run in runs]
    if any(not trouble and _has_told_lately(run) for trouble, run in troubles):
        return ""
    return next((trouble for trouble, _ in troubles if trouble), "")


def _has_told_lately(run: Evidence) -> bool:
    progress = run.progress
    return progress is not None and progress.told is not None and run.now - progress.told < progress.limit


class Health:
    def __init__(
        self,
        cloud: Callable[[], Cloud],
        clock: Clock,
        settings: Settings,
        metadata: Metadata,
        runner: Runner,
        memory_file: Path = Path("/run/holdfast/health.json"),
        say: Callable[[str], None] = print,
    ) -> None:
        self._cloud = cloud  # made only when it is needed
        self._clock = clock
        self._settings = settings
        self._metadata = metadata
        self._run = runner
        self._memory_file = memory_file
        self._say = say

    def tick(self) -> int:
        if leaving(self._metadata, self._say):
            return self._leave()
        memory = self._recall()
        kernel = self._kernel(memory)
        gpu, volume = self._gpu(), self._volume()
        active_for = self._active_for()
        runs = [
            Evidence(
                now=self._clock.now(),
                active_for=active_for,
                progress=read_progress(directory),
                gpu=gpu,
                kernel=kernel,
                volume=volume,
            )
            for directory in self._settings.run_dirs
        ]
        trouble = trouble_of_all(runs)
        code = self._act(trouble, memory) if trouble else OK
        self._remember(memory)
        return code

    def _act(self, trouble: str, memory: Memory) -> int:
        now = self._clock.now()
        before = memory.restarted.get(TRAINER)
        if before is None or now - before >= HOUR:
            self._say(f"{TRAINER}: {trouble}; restarting it")
            memory.restarted[TRAINER] = now
            self._remember(memory)
            return OK if self._run(["systemctl", "restart", TRAINER], 300).code == 0 else RETRY
        self._say(f"{TRAINER}: {trouble}, {now - before:.0f} s after its restart; this machine is unhealthy")
        return give_up(self._cloud(), self._settings, self._metadata.machine().instance, self._run, self._say)

    def _leave(self) -> int:
        """Commit, unmount, detach, in this order; then the group need not wait any longer."""
        self._say("the group terminates this machine: the trainer commits, and the volume is given back")
        self._run(["systemctl", "stop", TRAINER], 300)
        stopped = self._run(["systemctl", "stop", "holdfast-volume.service"], 300)
        if stopped.code != 0:
            self._say(f"the volume was not given back: {stopped.out}")
        cloud, instance = self._cloud(), self._metadata.machine().instance
        try:
            group = cloud.group_of(instance)
            if group is not None:
                cloud.complete_hook(group, HOOK, instance)
        except CloudError as error:
            self._say(f"the group waits for its hook's time-out: {error}")
            return RETRY
        return OK

    def _active_for(self) -> float | None:
        shown = self._run(
            ["systemctl", "show", TRAINER, "-p", "ActiveState", "-p", "ActiveEnterTimestampMonotonic"], 30
        )
        values = dict(line.split("=", 1) for line in shown.out.splitlines() if "=" in line)
        entered = values.get("ActiveEnterTimestampMonotonic", "0")
        if values.get("ActiveState") != "active" or not entered.isdigit() or entered == "0":
            return None
        return max(0.0, self._monotonic() - int(entered) / 1e6)

    def _monotonic(self) -> float:
        uptime = self._settings.dev_root / "proc/uptime"
        return float(uptime.read_text("ascii").split()[0])

    def _gpu(self) -> str:
        if not self._settings.gpu:
            return ""
        shown = self._run(["nvidia-smi", "-L"], 60)
        if shown.code != 0:
            return f"nvidia-smi: {shown.out or shown.code}"
        return "" if "GPU " in shown.out else "nvidia-smi shows no GPU"

    def _kernel(self, memory: Memory) -> str:
        since, memory.looked = memory.looked, self._clock.now()
        if not since:
            return ""
        log = self._run(["journalctl", "-k", "-q", "-o", "cat", f"--since=@{since:.0f}"], 30)
        for line in log.out.splitlines():
            if (match := XID.search(line)) and int(match[1]) in FATAL_XIDS:
                return line.strip()
        return ""

    def _volume(self) -> str:
        """Renews the lease: it stays young, and a volume that has failed takes no change."""
        mount = self._settings.mount
        if not (mount / lease.NAME).exists():
            return ""
        try:
            lease.renew(mount)
        except OSError as error:
            return f"{mount} cannot be written: {error.strerror}"
        return ""

    def _recall(self) -> Memory:
        try:
            told = json.loads(self._memory_file.read_text("utf-8"))
            restarted = {str(name): float(at) for name, at in told["restarted"].items()}
            return Memory(restarted, float(told["looked"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Memory()

    def _remember(self, memory: Memory) -> None:
        self._memory_file.parent.mkdir(parents=True, exist_ok=True)
        new = self._memory_file.with_suffix(".new")
        new.write_text(json.dumps(asdict(memory)), "utf-8")
        new.replace(self._memory_file)


def give_up(
    cloud: Cloud, settings: Settings, instance: str, run: Runner, say: Callable[[str], None] = print
) -> int:
    """Lets the group replace this instance; unless those before it were given up, too, and none has committed."""
    try:
        row = Registers(cloud, settings.run).give_up(instance)
    except CloudError as error:
        say(f"{instance} could not be written down as given up: {error}")
        return RETRY
    if row < IN_A_ROW * settings.nodes:
        return unhealthy(cloud, settings.run, instance, say)
    say(f"{row} machines in a row were given up, and none has committed a checkpoint: another would not help")
    run(["systemctl", "stop", TRAINER], 300)
    return OK if run(["systemctl", "start", "--no-block", "hf-park.service"], 60).code == 0 else RETRY


def unhealthy(cloud: Cloud, run: str, instance: str, say: Callable[[str], None] = print) -> int:
    """Asks the group to replace this instance. The volume is given back when the group terminates it."""
    try:
        cloud.set_unhealthy(instance)
        cloud.metric(run, "worker_unhealthy")
    except CloudError as error:
        say(f"{instance} could not be reported: {error}")
        return RETRY
    return OK
