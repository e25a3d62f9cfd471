"""The package and its tests are typed and clean, and keep to the syntax of Python 3.9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "examples" / "aws_spot"
TESTS = ROOT / "tests" / "aws"


def passes(*command: str) -> None:
    """Fails with the command's output unless it exits with 0."""
    done = subprocess.run(
        (sys.executable, "-m", *command), cwd=KIT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)


def test_ruff() -> None:
    passes(
        "ruff",
        "check",
        "--no-cache",
        "--output-format=concise",
        "--config",
        "pyproject.toml",
        str(KIT),
        str(TESTS),
    )


def test_ruff_format() -> None:
    passes("ruff", "format", "--diff", "--no-cache", "--config", "pyproject.toml", str(KIT), str(TESTS))


def test_mypy_strict() -> None:
    cache = ROOT / "build" / "mypy"
    passes("mypy", "--config-file", "pyproject.toml", "--cache-dir", str(cache), "holdfast_aws")
