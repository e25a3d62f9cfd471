"""What the worker's ledger says of its steps. The rules are those of `holdfast supervise --stall-timeout`:

a training stands still when its ledger goes on telling the same step for max(10 min, 20 times the 95th
percentile of a step). Starts, declared evaluations and pauses before an announced end do not count. An attempt
that has begun and not ended, and gives no sign at all for that long, counts too: the whole process hangs. A save
that takes longer writes no line; the attempt's progress.json is its sign.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_aws.run_state import last_sign, ledger, newest_attempt

LEAST = 600.0  # seconds
STEPS = 20
GAP = 30.0  # seconds; lines come every 10 s, and not while a checkpoint is written
TAIL = 1 << 20  # bytes of the ledger that are read


@dataclass(frozen=True)
class Progress:
    step: int
    standing: float  # seconds that the step has not moved, by the ledger's own clock; 0 when it need not
    limit: float  # seconds
    last: float | None  # Unix seconds of the newest sign of a training that has begun and not ended
    told: float | None = None  # Unix seconds of the newest sign


def read_progress(directory: Path) -> Progress:
    """Of the newest attempt."""
    attempt = newest_attempt(directory)
    progress, sign = read_ledger(ledger(directory, attempt)), last_sign(directory, attempt)
    last, told = (None if at is None else max(at, sign) for at in (progress.last, progress.told))
    return replace(progress, last=last, told=told)


def read_ledger(path: Path) -> Progress:
    """Of a long ledger the newest lines only."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return progress_of([])
    if size > TAIL:  # the first is torn, and the training began before it
        lines[0] = '{"event":"go on","up_ms":0}'
    return progress_of(lines[:-1])


def progress_of(lines: Iterable[str]) -> Progress:
    """A torn or foreign line says nothing."""
    counts, step = False, -1
    steps: list[float] = []
    moved = told = step_told = 0.0
    last: float | None = None
    newest: float | None = None
    for text in lines:
        line = _object(text)
        up, event = _number(line, "up_ms"), line.get("event")
        if up is None or not isinstance(event, str):
            continue
        up /= 1000
        now_at = _number(line, "step")
        at = step if now_at is None else int(now_at)
        wall = _number(line, "t")
        if event in ("start", "go on"):
            counts, step = True, max(step, at)
            moved = told = step_told = up
        elif event in ("pause", "end"):
            counts, last = False, None
        elif event == "progress":
            if "phase" in line or up - told > GAP:
                step = max(step, at)
                moved = step_told = up
            elif at > step:
                steps.append((up - step_told) / (at - step))
                step, moved, step_told = at, up, up
            told = up
        if wall is not None:
            newest = wall / 1000
            last = newest if counts else last
    steps.sort()
    p95 = steps[(len(steps) - 1) * 95 // 100] if steps else 0.0
    standing = told - moved if counts else 0.0
    return Progress(step, standing, max(LEAST, STEPS * p95), last if counts else None, newest)


def _object(text: str) -> dict[str, object]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _number(line: dict[str, object], name: str) -> float | None:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
