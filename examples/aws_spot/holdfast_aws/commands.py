"""Runs the machine's own programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MISSING = 127  # a program that is not there, as the shell says it
TOO_LONG = 124


@dataclass(frozen=True)
class Done:
    code: int
    out: str  # what it wrote, errors last


Runner = Callable[[Sequence[str], float], Done]


def run(command: Sequence[str], limit: float = 600) -> Done:
    """Without input; ended after `limit` seconds. Never raises for what the program does."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
        )
    except FileNotFoundError:
        return Done(MISSING, f"{command[0]} is not installed")
    except subprocess.TimeoutExpired:
        return Done(TOO_LONG, f"{command[0]} did not end within {limit:.0f} s")
    return Done(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace").strip())
