"""What a run directory says of its run: the library's RUN_STATE.json, its attempts and its checkpoints.

Only the newest attempt is believed, as in the library: a machine that lost the run cannot end it.
Errors: none; what cannot be read or is torn says nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

CHECKPOINT = re.compile(r"step-([0-9]{12,18})-a([0-9]{4,18})\.h5")
_DAMAGED = re.compile(r"step-[0-9]{12,18}-a([0-9]{4,18})\.h5\.damaged")
_TEMPORARY = re.compile(r"tmp-a([0-9]{4,18})-.+")
_CLAIM = re.compile(r"([1-9][0-9]{0,17})(\.state\.json)?")
_LEDGER = "ledger-a{:04}.jsonl"
LONGEST = 64 << 10  # bytes; a state has less than 1 KiB


@dataclass(frozen=True)
class RunState:
    attempt: int
    phase: str  # starting, running, complete, interrupted, failed, superseded
    step: int
    durable_step: int  # -1: none
    exit_code: int


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


def held_checkpoints(directory: Path) -> bool:
    """There is, or was, something to lose here."""
    if any(name.startswith("step-") for name in _names(directory)):
        return True
    state = _state(directory / "RUN_STATE.json")
    states = [state, *(_state(directory / "attempts" / name) for name in _names(directory / "attempts"))]
    return any(known is not None and known.durable_step >= 0 for known in states)


def ledger(directory: Path, attempt: int) -> Path:
    return directory / _LEDGER.format(attempt)


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


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value
