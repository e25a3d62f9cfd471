"""Other people's checkers on what the kit renders. What they say and we accept stands here with its reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import plans
import pytest

from holdfast_aws import user_data
from holdfast_aws.policy import instance_policy
from holdfast_aws.template import template

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "examples" / "aws_spot"
DEPS = ROOT / ".deps" / "aws"

# parliament judges each statement alone: an action whose resource types are split over two statements, on purpose,
# is no match in either.
PARLIAMENT_ACCEPTED = {
    ("RESOURCE_MISMATCH", "ec2:CreateVolume"): "volume and snapshot have their own conditions",
    ("RESOURCE_MISMATCH", "ec2:CreateSnapshot"): "snapshot and volume have their own conditions",
}


def said(*command: str | Path, expect: int | None = 0, **options: Any) -> str:
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True, check=False, **options)
    text = done.stdout + done.stderr
    if expect is not None and done.returncode != expect:
        pytest.fail(f"{command[0]} exited with {done.returncode}:\n{text}", pytrace=False)
    return text


@pytest.mark.parametrize("name", ["plain", "fallback", "a100-mig", "nodes"])
def test_cfn_lint(name: str, tmp_path: Path) -> None:
    file = tmp_path / "template.json"
    file.write_text(json.dumps(template(plans.ALL[name])))
    said(DEPS / "bin" / "cfn-lint", "--non-zero-exit-code", "informational", file)


def test_cfn_lint_catches_a_wrong_property(tmp_path: Path) -> None:
    made = template(plans.PLAIN)
    made["Resources"]["Spot"]["Properties"]["MixedInstancePolicy"] = {}
    file = tmp_path / "template.json"
    file.write_text(json.dumps(made))
    assert "MixedInstancePolicy" in said(DEPS / "bin" / "cfn-lint", file, expect=None)


def test_checkov(tmp_path: Path) -> None:
    file = tmp_path / "template.json"
    file.write_text(json.dumps(template(plans.ALL["fallback"])))
    text = said(
        DEPS / "checkov" / "bin" / "checkov", "-f", file, "--framework", "cloudformation",
        "--skip-download", "--compact", "--quiet", "-o", "json", expect=None,
    )  # fmt: skip
    report = json.loads(text)
    assert report["summary"]["passed"] >= 5
    failed = {(check["check_id"], check["resource"]) for check in report["results"]["failed_checks"]}
    assert failed == set()


def parliament(policy: dict[str, Any]) -> set[tuple[str, str]]:
    program = (
        "import json, sys, parliament\n"
        "found = parliament.analyze_policy_string(sys.stdin.read()).findings\n"
        "print(json.dumps([[f.issue, str(f.detail), str(f.location)] for f in found]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        input=json.dumps(policy),
        capture_output=True,
        text=True,
        check=True,
    )
    found = set()
    for issue, detail, location in json.loads(done.stdout):
        action = next(
            (a for _, a in PARLIAMENT_ACCEPTED if a.split(":")[1] in location + detail), location + detail
        )
        found.add((issue, action))
    return found


@pytest.mark.parametrize("name", ["ecr", "s3"])
def test_parliament(name: str) -> None:
    found = parliament(plans.ALL[name].policy)
    assert found - set(PARLIAMENT_ACCEPTED) == set()


def test_parliament_catches_an_unknown_action() -> None:
    policy = instance_policy("r1")
    policy["Statement"][0]["Action"] = ["ec2:CancelSpotFleetRequest"]
    assert any(issue == "UNKNOWN_ACTION" for issue, _ in parliament(policy))


def cloud_init(text: str, tmp_path: Path, expect: int | None = 0) -> str:
    if not (DEPS / "cloudinit").exists():
        pytest.skip("there is no cloud-init here")
    file = tmp_path / "user-data"
    file.write_text(text)
    # Its package needs no installation, and its modules none of this machine's settings.
    command = (sys.executable, "-m", "cloudinit.cmd.main", "schema", "-c", file)
    return said(*command, expect=expect, env={"PYTHONPATH": str(DEPS), "PATH": "/usr/bin:/bin"})


KEYS = {"write_files", "runcmd"}  # cloud-init's schema accepts any other key, a typo too
FILE_KEYS = {"path", "permissions", "content"}


@pytest.mark.parametrize("name", plans.ALL)
def test_cloud_config(name: str, tmp_path: Path) -> None:
    text = user_data.cloud_config(plans.ALL[name])
    cloud_init(text, tmp_path)
    config = json.loads(text.removeprefix("#cloud-config\n"))
    assert set(config) == KEYS
    assert all(set(file) == FILE_KEYS for file in config["write_files"])
    paths = [file["path"] for file in config["write_files"]]
    assert len(paths) == len(set(paths))
    enabled = {word for step in config["runcmd"] for word in step if word.endswith((".service", ".timer"))}
    files = {Path(path).name for path in paths}
    assert {name.replace("@0", "@") for name in enabled if "@" not in name or "@0" in name} <= files


def test_cloud_init_catches_a_wrong_type(tmp_path: Path) -> None:
    assert "is not of type" in cloud_init("#cloud-config\nruncmd: 7\n", tmp_path, expect=1)


def installed(root: Path, name: str) -> Path:
    """A root folder as cloud-init would leave it."""
    config = json.loads(user_data.cloud_config(plans.ALL[name]).removeprefix("#cloud-config\n"))
    for file in config["write_files"]:
        place = root / file["path"].lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file["content"])
        place.chmod(int(file["permissions"], 8))
    for unit in ("basic", "multi-user", "network-online", "shutdown", "sysinit", "timers"):
        (root / f"etc/systemd/system/{unit}.target").write_text(f"[Unit]\nDescription={unit}\n")
    for program in ("/usr/bin/systemctl", "/bin/sh"):
        (root / program[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / program[1:]).write_text("#!/bin/sh\n")
        (root / program[1:]).chmod(0o755)
    return root


def verify_units(root: Path, *units: str) -> str:
    return said("systemd-analyze", "verify", f"--root={root}", *units, expect=None)


@pytest.mark.parametrize("name", ["plain", "a100-mig", "s3"])
def test_units(name: str, tmp_path: Path) -> None:
    root = installed(tmp_path, name)
    units = [path.name.replace("@.", "@0.") for path in (root / "etc/systemd/system").iterdir()]
    assert verify_units(root, *units) == ""


def test_systemd_catches_a_wrong_key(tmp_path: Path) -> None:
    root = installed(tmp_path, "plain")
    unit = root / "etc/systemd/system/holdfast.service"
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMood=mixed"))
    assert "KillMood" in verify_units(root, "holdfast.service")


def scripts() -> list[Path]:
    folders = [KIT, KIT / "machine", KIT / "mig", KIT / "p4d", ROOT / "tests" / "aws"]
    files = [path for folder in folders if folder.exists() for path in folder.iterdir() if path.is_file()]
    shells = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash")
    return [path for path in files if path.read_bytes().startswith(shells)]


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.name)
def test_shellcheck(script: Path) -> None:
    said("shellcheck", "-S", "warning", script)


def test_every_script_is_executable() -> None:
    assert len(scripts()) >= 6
    assert [path for path in scripts() if not path.stat().st_mode & 0o111] == []
