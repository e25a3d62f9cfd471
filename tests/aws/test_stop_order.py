"""How systemd ends a machine's services: the trainer commits and ends, then the volume goes. Scenario 32.

No systemd runs here (test_systemd.py has one, where it can). The order comes from the units' own words, as systemd
reads them: what is After= another is stopped before it, and what nothing orders stops at once.
"""

from __future__ import annotations

import configparser
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_scripts import KIT, Bench, bench  # noqa: F401

BIN = Path(os.environ["HOLDFAST_BUILD"]) / "bin"
NAMES = ("holdfast-volume.service", "holdfast.service")  # by name alone the volume would be first
TRAINER = """#!/bin/bash
trap 'sleep 0.3; echo "the trainer ended" >>"$LOG"; exit 75' TERM
echo "the trainer begins" >>"$LOG"
while :; do sleep 0.05; done
"""


def units() -> dict[str, configparser.ConfigParser]:
    made = {}
    for name in NAMES:
        made[name] = configparser.ConfigParser(strict=False, interpolation=None)
        made[name].optionxform = str  # type: ignore[assignment,method-assign]
        made[name].read(KIT / "units" / name)
    return made


def stop_order(read: Mapping[str, configparser.ConfigParser]) -> list[str]:
    left, order = sorted(read), []
    while left:
        free = [
            name
            for name in left
            if not any(name in read[other]["Unit"].get("After", "").split() for other in left)
        ]
        order.append(free[0])
        left.remove(free[0])
    return order


def stop(bench: Bench, order: list[str], read: Mapping[str, configparser.ConfigParser]) -> list[str]:  # noqa: F811
    """Starts the trainer's unit, then stops both; answers with what happened after the start."""
    if not (BIN / "holdfast").exists():
        pytest.skip(f"{BIN / 'holdfast'} is not built")
    (bench.bin / "holdfast").symlink_to(BIN / "holdfast")
    (bench.bin / "train").write_text(TRAINER)
    (bench.bin / "train").chmod(0o755)
    environment = {
        "PATH": f"{bench.bin}:/usr/bin:/bin",
        "HF_HOME": str(bench.home),
        "HF_ETC": str(bench.root / "etc"),
        "HF_MOUNT": str(bench.root / "mnt"),
        "HF_RUNTIME": str(bench.root),
        "LOG": str(bench.log),
    }

    def program(unit: str, key: str) -> list[str]:
        words = read[unit]["Service"][key].split()
        place = Path(words[0])
        return [str(bench.home / "hf" if place.name == "hf" else KIT / "machine" / place.name), *words[1:]]

    main = subprocess.Popen(program("holdfast.service", "ExecStart"), env=environment)
    try:
        until = time.monotonic() + 60
        while "the trainer begins" not in bench.calls():
            assert time.monotonic() < until
            time.sleep(0.02)
        for unit in order:
            if unit == "holdfast.service":
                assert read[unit]["Service"]["KillMode"] == "mixed"  # SIGTERM to the main process alone
                main.send_signal(signal.SIGTERM)
                code = main.wait(float(read[unit]["Service"]["TimeoutStopSec"]))
                bench.log.open("a").write(f"the unit ended with {code}\n")
            else:
                subprocess.run(program(unit, "ExecStop"), env=environment, check=True, timeout=60)
    finally:
        main.send_signal(signal.SIGTERM)
        main.wait(60)
    return bench.calls()[1:]


def test_the_trainer_ends_before_the_volume_goes(bench: Bench) -> None:  # noqa: F811
    read = units()
    assert stop(bench, stop_order(read), read) == [
        *("the trainer ended", "the unit ended with 75", "hf volume down")
    ]


def test_planted_unit_without_an_order(bench: Bench) -> None:  # noqa: F811
    read = units()
    read["holdfast.service"]["Unit"]["After"] = "docker.service"
    assert stop(bench, stop_order(read), read)[0] == "hf volume down"
