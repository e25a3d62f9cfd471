"""`hf beacon`: one line on the machine's console, twice a minute, which `hf-aws status` reads without any way in.

    holdfast-status {"t": 1700000000, "runs": [{"dir": "run", "attempt": 3, "phase": "running", "step": 1200, …}]}

After the first checkpoint that this machine has committed it also writes a register, once: gen/N/proved, and only then
may `hf-aws gc` delete what the run moved away from. And, if machines were given up, that this one trains: at most once
an hour, after a newer checkpoint, because a standby beside it may be given up at any time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast_aws.cloud import Clock, Cloud, CloudError
from holdfast_aws.registers import Registers
from holdfast_aws.run_state import checkpoints, ledger, newest_attempt, read_home, read_state
from holdfast_aws.stop import OK, RETRY
from holdfast_aws.worker import read_progress

MARK = "holdfast-status "
TAIL = 64 << 10  # bytes of the ledger
LONGEST_FAILURE = 200  # characters; the console keeps 64 KiB
AGAIN = 3600.0  # seconds until a machine that commits looks again whether others were given up
PROVED = Path("/run/holdfast/proved")
UPTIME = Path("/proc/uptime")


def line(now: float, directories: Sequence[Path]) -> str:
    return MARK + json.dumps({"t": round(now), "runs": [_of(now, each) for each in directories]})


def _of(now: float, directory: Path) -> dict[str, object]:
    told: dict[str, object] = {"dir": directory.name}
    state = read_state(directory)
    if state is not None:
        told.update(
            attempt=state.attempt, phase=state.phase, step=state.step, durable_step=state.durable_step
        )
    sign = read_progress(directory).told
    if sign is not None:
        told["silent_s"] = round(now - sign)
    newest = checkpoints(directory)[:1]
    if newest:
        told["durable_age_s"] = round(now - newest[0].stat().st_mtime)
    home = read_home(directory)
    if home is not None:
        told["home_step"] = home.newest.step if home.newest else -1
        if home.newest and home.since:
            told["home_age_s"] = max(0, round(now - home.since))
        if home.failure:
            told["home_failure"] = home.failure[:LONGEST_FAILURE]
    notice = _last_notice(ledger(directory, newest_attempt(directory)))
    if notice:
        told["notice"] = notice
    return told


def _last_notice(path: Path) -> str:
    """When the newest attempt was last told that its machine goes away; "": never, as far as the tail says."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    for text in reversed(lines):
        try:
            told = json.loads(text)
        except ValueError:
            continue
        if isinstance(told, dict) and told.get("event") == "notice":
            left = told.get("left_ms")
            when = f", {left / 1000:.0f} s ahead" if isinstance(left, (int, float)) else ""
            return f"{told.get('kind', 'notice')} by {told.get('source', '?')}{when}"
    return ""


def beacon(
    cloud: Callable[[], Cloud],
    clock: Clock,
    run: str,
    directories: Sequence[Path],
    on_volume: Sequence[Path],
    write: Callable[[str], object],
    booted: float,
    instance: Callable[[], str],
    mark: Path = PROVED,
) -> int:
    """`on_volume`: where the run's volume has checkpoints; those on the machine's own drives prove nothing of it.
    `booted`: Unix seconds; a checkpoint that is younger was committed by this machine.
    """
    write(line(clock.now(), directories) + "\n")

    def prove(registers: Registers) -> None:
        current = registers.read().current
        if current is not None:
            registers.mark_proved(current.number, str(current.volume))

    def forgive(registers: Registers) -> None:
        registers.forgive(f"trains:{instance()}")

    code, now = OK, clock.now()
    for places, done, again, write_register in (
        (on_volume, mark, float("inf"), prove),
        (directories, mark.with_name(f"{mark.name}-trains"), AGAIN, forgive),
    ):
        newest = [found[0].stat().st_mtime for each in places if (found := checkpoints(each))]
        last = done.stat().st_mtime if done.exists() else float("-inf")
        if now < last + again or not newest or max(newest) < max(booted, last):
            continue
        try:
            write_register(Registers(cloud(), run))
        except CloudError:
            code = RETRY  # the next tick tries again
            continue
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
        os.utime(done, (now, now))
    return code


def uptime(path: Path = UPTIME) -> float:
    return float(path.read_text("ascii").split()[0])
