"""The file of `hf-aws up --sweep`, looked at before a machine is paid for. There `holdfast sweep` checks more.

Errors: UsageError, which names the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

MOST = 100  # runs; the console, which hf-aws status reads, keeps 64 KiB
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class UsageError(Exception):
    """The options make no sense together; exit code 64."""


def read(path: str) -> str:
    try:
        text = Path(path).read_text("utf-8").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--sweep {path}: {getattr(error, 'strerror', None) or 'it is no UTF-8 text'}"
        ) from error
    if not text:
        raise UsageError(f"--sweep {path} is empty: a line a run is wanted")
    return text + "\n"


def names(text: str) -> tuple[str, ...]:
    return tuple(str(values["name"]) for values in _runs(text))


def check(text: str, command: Sequence[str]) -> None:
    runs = _runs(text)
    if len(runs) > MOST:
        _refuse(MOST, f"a machine takes {MOST} runs at most")
    for number, values in enumerate(runs):
        for word in command:
            for found in _BRACES.finditer(word):
                if found[0] not in ("{{", "}}") and found[1] not in (*values, "run_dir"):
                    _refuse(
                        number,
                        f"it has no value for {found[0]} in '{word}'; for a brace itself write {{{{ or }}}}",
                    )


def _runs(text: str) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        try:
            values = json.loads(line, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            _refuse(number, 'it is no JSON object such as {"name": "lr03", "lr": 0.3}')
        name = values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _refuse(number, f"the name {name!r}: at most 100 letters, digits, '.', '_' and '-'")
        if name in seen:
            _refuse(number, f"the name {name!r} is that of line {seen[name] + 1} already")
        seen[name] = number
        runs.append(values)
    return runs


def _refuse(number: int, why: str) -> NoReturn:
    raise UsageError(f"--sweep, line {number + 1}: {why}")
