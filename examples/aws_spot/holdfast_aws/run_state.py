"""What a run directory says of its run: the library's RUN_STATE.json, its attempts and its checkpoints.

Only the newest attempt is believed, as in the library: a machine that lost the run cannot end it.
Errors: none; what cannot be read or is torn says nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

CHECKPOINT = re.compile(r"step-([0-9]{12,18})-a([0-9]{4,18})\.h5")
_DAMAGED = re.compile(r"step-[0-9]{12,18}-a([0-9]{4,18})\.h5\.damaged(?:-[0-9]+)?")
_TEMPORARY = re.compile(r"tmp-a([0-9]{4,18})-.+")
_CLAIM = re.compile(r"([1-9][0-9]{0,17})(\.state\.json)?")
_LEDGER = "ledger-a{:04}.jsonl"
_HOME = "HOME_STATE.json"
LONGEST = 64 << 10  # bytes; a state has less than 1 KiB


@dataclass(frozen=True)
class RunState:
    attempt: int
    phase: str  # starting, running, complete, interrupted, failed, superseded
    step: int
    durable_step: int  # -1: none
    exit_code: int


@dataclass(frozen=True, order=True)
class Point:
    """A checkpoint, ordered as recovery does."""

    attempt: int
    step: int


@dataclass(frozen=True)
class HomeState:
    """What `holdfast mirror` says of the copies in a safer place."""

    newest: Point | None  # None: nothing is home
    since: float  # Unix seconds; 0: unknown
    failure: str  # why the last try failed; "" when it did not


def newest_attempt(directory: Path) -> int:
    """0: nobody has trained here."""
    highest = 0
    for path in _names(directory):
        for pattern in (CHECKPOINT, _DAMAGED, _TEMPORARY):
            if match := pattern.fullmatch(path):
                highest = max(highest, int(match[match.lastindex or 0]))
    for path in _names(directory / "attempts"):
        if match := _CLAIM.fullmatch(path):
            highest = max(highest, int(match[1]))
    return highest


def read_state(directory: Path) -> RunState | None:
    """None: the newest attempt has said nothing that can be read."""
    newest = newest_attempt(directory)
    for path in (directory / "attempts" / f"{newest}.state.json", directory / "RUN_STATE.json"):
        state = _state(path)
        if state is not None and state.attempt == newest:
            return state
    return None


def checkpoints(directory: Path) -> list[Path]:
    """Newest first: by attempt, then by step."""
    found = []
    for name in _names(directory):
        if match := CHECKPOINT.fullmatch(name):
            found.append((int(match[2]), int(match[1]), name))
    return [directory / name for _, _, name in sorted(found, reverse=True)]


def read_home(directory: Path) -> HomeState | None:
    """None: the mirror has said nothing that can be read."""
    try:
        with (directory / _HOME).open("rb") as file:
            told = json.loads(file.read(LONGEST))
        newest = Point(_whole(told["attempt"]), _whole(told["step"])) if "step" in told else None
        return HomeState(newest, _unix(told.get("since")), str(told.get("failure", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def is_home(directory: Path) -> bool:
    """The newest checkpoint here has its copy in the safer place."""
    newest = checkpoints(directory)[:1]
    home = read_home(directory)
    if not newest or home is None or home.newest is None:
        return False
    match = CHECKPOINT.fullmatch(newest[0].name)
    return match is not None and home.newest >= Point(int(match[2]), int(match[1]))


def held_checkpoints(directory: Path) -> bool:
    """There is, or was, something to lose here."""
    if any(name.startswith("step-") for name in _names(directory)):
        return True
    state = _state(directory / "RUN_STATE.json")
    states = [state, *(_state(directory / "attempts" / name) for name in _names(directory / "attempts"))]
    return any(known is not None and known.durable_step >= 0 for known in states)


def ledger(directory: Path, attempt: int) -> Path:
    return directory / _LEDGER.format(attempt)


def last_sign(directory: Path, attempt: int) -> float:
    """Unix seconds; 0: none. The process that trains rewrites this file every 10 s, also while it saves."""
    try:
        return (directory / "attempts" / f"{attempt}.progress.json").stat().st_mtime
    except OSError:
        return 0.0


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []


def _state(path: Path) -> RunState | None:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(LONGEST))
        return RunState(
            attempt=_whole(told["attempt"]),
            phase=str(told["phase"]),
            step=_whole(told.get("step", 0)),
            durable_step=_whole(told.get("durable_step", -1)),
            exit_code=_whole(told.get("exit_code", 0)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _unix(text: object) -> float:
    """Of a UTC time such as 2026-01-31T23:59:59Z; 0 when it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value
