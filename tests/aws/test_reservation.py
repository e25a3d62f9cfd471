"""The rules that turn EventBridge's words about a reservation into a notice file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_checkers import DEPS, KIT, said

FILE = KIT / "reservation-notice.yaml"
RESERVATION = "cr-1"


def rules() -> dict[str, Any]:
    made = yaml.safe_load(FILE.read_text())
    return {
        name: one["Properties"]
        for name, one in made["Resources"].items()
        if one["Type"] == "AWS::Events::Rule"
    }


def event(kind: str, **detail: str) -> dict[str, Any]:
    return {"source": "aws.ec2", "detail-type": kind, "detail": detail}


# As AWS documents them; the guide of one partition has another name of the first.
BLOCK = event("Capacity Block Expiration Warning", **{"capacity-reservation-id": RESERVATION})
BLOCK_TOO = {**BLOCK, "detail-type": "Capacity Block Reservation Expiration Warning"}
OTHER_BLOCK = event("Capacity Block Expiration Warning", **{"capacity-reservation-id": "cr-2"})
BEGINS = event("Capacity Block Delivered", **{"capacity-reservation-id": RESERVATION})
TAKEN = event("EC2 Capacity Reservation Instance Interruption Warning", **{"instance-id": "i-1"})
OTHER_TAKEN = event("EC2 Capacity Reservation Instance Interruption Warning", **{"instance-id": "i-2"})


def matches(pattern: Any, value: Any) -> bool:
    """EventBridge's rule for exact values."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(matches(want, value.get(key)) for key, want in pattern.items())
    return value in [RESERVATION if one == {"Ref": "Reservation"} else one for one in pattern]


def commands(target: Any, told: dict[str, Any]) -> list[str]:
    text = target.get("Input")
    if text is None:
        transformer = target["InputTransformer"]
        text = transformer["InputTemplate"]
        for name, path in transformer["InputPathsMap"].items():
            text = text.replace(f"<{name}>", told["detail"][path.removeprefix("$.detail.")])
        assert not set("<>") & set(text), "EventBridge would look for a name there"
    lines: list[str] = json.loads(text)["commands"]
    return lines


def notice(told: dict[str, Any], root: Path) -> dict[str, Any] | None:
    """What the machine i-1 has after the event."""
    (root / "bin").mkdir()
    (root / "bin/cloud-init").write_text('#!/bin/sh\n[ "$*" = "query instance_id" ] && echo i-1\n')
    (root / "bin/cloud-init").chmod(0o755)
    for rule in rules().values():
        if matches(rule["EventPattern"], told):
            script = "\n".join(commands(rule["Targets"][0], told)).replace("/run/holdfast", f"{root}/run")
            subprocess.run(
                ["sh", "-c", script],
                env={"PATH": f"{root}/bin:/usr/bin:/bin"},
                check=True,
                capture_output=True,
            )
    file = root / "run/notice"
    return json.loads(file.read_text()) if file.exists() else None


@pytest.mark.parametrize(("told", "seconds"), [(BLOCK, 540), (BLOCK_TOO, 540), (TAKEN, 110)])
def test_an_end_becomes_a_notice(told: dict[str, Any], seconds: int, tmp_path: Path) -> None:
    made = notice(told, tmp_path)
    assert made is not None
    assert (made["action"], made["in_seconds"]) == ("terminate", seconds)


@pytest.mark.parametrize("told", [OTHER_BLOCK, BEGINS, OTHER_TAKEN])
def test_what_concerns_others_is_no_notice(told: dict[str, Any], tmp_path: Path) -> None:
    assert notice(told, tmp_path) is None


def test_only_machines_of_the_run_are_told() -> None:
    for rule in rules().values():
        (target,) = rule["Targets"]
        assert target["RunCommandParameters"]["RunCommandTargets"] == [
            {"Key": "tag:holdfast:run", "Values": [{"Ref": "Run"}]}
        ]
    role = yaml.safe_load(FILE.read_text())["Resources"]["Role"]["Properties"]
    (_, machines) = role["Policies"][0]["PolicyDocument"]["Statement"]
    assert machines["Condition"] == {"StringEquals": {"ssm:resourceTag/holdfast:run": {"Ref": "Run"}}}


def test_cfn_lint() -> None:
    said(DEPS / "bin" / "cfn-lint", "--non-zero-exit-code", "informational", FILE)
