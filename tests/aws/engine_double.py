"""An engine that places tasks on machines and starts them again, played: AWS Batch and SkyPilot keep this contract.

    play(tasks, Contract(machines=3, grace=30, verdict=…), folder)

Each attempt has the same command on a fresh disk, in a process name space of its own, as a container has. A machine
that is lost takes everything with it at once. A task that is stopped gets SIGTERM, and after the grace
SIGKILL with its machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def why_not() -> str:
    """Why tasks cannot be played here; "" if they can."""
    done = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no process name spaces here: a machine could not be lost"


@dataclass
class Task:
    name: str  # of its run
    command: Sequence[str]
    environment: Mapping[str, str]
    kills: list[str]  # what will happen to its attempts, in turn: "lost", or "stopped"
    progress: Callable[[], int]  # the newest step that survives its machine
    at_last: Callable[[], None]  # nothing will happen to it any more
    attempts: int = 0
    ended: str = ""
    said: list[str] = field(default_factory=list)


@dataclass
class Contract:
    machines: int
    grace: float  # seconds
    verdict: Callable[[Task, int, bool], str]  # exit code, machine lost -> "again", "done", "failed"
    index: Callable[[Task], Mapping[str, str]]  # what the engine sets for an attempt
    disk: str  # the variable that names the fresh disk


class Attempt:
    def __init__(self, task: Task, contract: Contract, disk: Path) -> None:
        self.task, self.grace, self.disk = task, contract.grace, disk
        task.attempts += 1
        disk.mkdir()
        self.log = disk.with_suffix(".log")
        environment = {**task.environment, **contract.index(task), contract.disk: str(disk)}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*NAMESPACE, *task.command], env=environment, cwd=disk, stdout=log, stderr=subprocess.STDOUT
            )
        self.began_at = task.progress()
        self.lost = False
        self.deadline: float | None = None

    def happens(self) -> None:
        """What this attempt is killed for, once it has brought something home."""
        if self.deadline is not None and not self.lost and time.monotonic() > self.deadline:
            self.lost = True  # the grace is over, and the machine goes
            self.process.kill()
        if self.deadline is not None or self.lost or not self.task.kills:
            return
        if self.task.progress() <= self.began_at:
            return
        if self.task.kills.pop(0) == "lost":
            self.lost = True
            self.process.kill()
        else:
            self.deadline = time.monotonic() + self.grace
            os.kill(self._process_one(), signal.SIGTERM)

    def _process_one(self) -> int:
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def ends(self) -> int | None:
        code = self.process.poll()
        if code is None:
            return None
        self.task.said.append(self.log.read_text(errors="replace"))
        shutil.rmtree(self.disk)
        return code


def play(tasks: Sequence[Task], contract: Contract, folder: Path, patience: float) -> None:
    queue, running, disks = list(tasks), list[Attempt](), 0
    until = time.monotonic() + patience
    try:
        while queue or running:
            assert time.monotonic() < until, f"it never ends:\n{[one.log.read_text() for one in running]}"
            while queue and len(running) < contract.machines:
                disks += 1
                running.append(Attempt(queue.pop(0), contract, folder / f"disk-{disks}"))
            for attempt in list(running):
                attempt.happens()
                code = attempt.ends()
                if code is None:
                    continue
                running.remove(attempt)
                task = attempt.task
                if not task.kills:
                    task.at_last()
                verdict = contract.verdict(task, code, attempt.lost)
                if verdict == "again":
                    queue.append(task)
                else:
                    task.ended = verdict
            time.sleep(0.2)
    finally:
        for attempt in running:
            attempt.process.kill()
            attempt.process.wait()
