"""What a machine tells on its console, and when it says that its volume has proved itself."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from holdfast_aws.beacon import MARK, beacon, line
from holdfast_aws.look import _progress_lines, _status_line
from holdfast_aws.registers import parse

NOW = 1_800_000_000.0
PATH = "/holdfast/r1"


class Registers:
    """Enough of a Cloud."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known

    def parameters(self, path: str) -> dict[str, str]:
        return dict(self.known)

    def put_once(self, name: str, value: str) -> bool:
        return self.known.setdefault(name, value) == value


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("the beacon never waits")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_run_dir(tmp_path)


def make_run_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / "attempts").mkdir(parents=True)
    state = {"attempt": 3, "phase": "running", "step": 1200, "durable_step": 1180}
    (directory / "attempts/3").touch()
    (directory / "attempts/3.state.json").write_text(json.dumps(state))
    checkpoint = directory / "step-000000001180-a0003.h5"
    checkpoint.touch()
    os.utime(checkpoint, (NOW - 40, NOW - 40))
    ledger = directory / "ledger-a0003.jsonl"
    notice = {"event": "notice", "kind": "deadline", "source": "ec2", "left_ms": 119000}
    ledger.write_text(f'{json.dumps(notice)}\n{{"event":"progress"}}\n{{"event":"pro')
    return directory


def test_status_understands_the_line(run_dir: Path) -> None:
    told = _status_line("[  12.3] " + line(NOW, [run_dir]))
    assert told is not None
    (one,) = told["runs"]
    assert (one["attempt"], one["step"], one["durable_step"], one["durable_age_s"]) == (3, 1200, 1180, 40)
    assert one["notice"] == "deadline by ec2, 119 s ahead"


@pytest.mark.parametrize(
    "text", ["", MARK, MARK + "{", MARK + "[]", MARK + '{"t": "x", "runs": []}', "kernel: …"]
)
def test_status_ignores_torn_lines(text: str) -> None:
    assert _status_line(text) is None


def test_a_start_that_hangs_shows_in_the_line(run_dir: Path) -> None:
    ledger = run_dir / "ledger-a0003.jsonl"
    ledger.write_text(json.dumps({"event": "end", "up_ms": 9000, "t": (NOW - 7 * 86400) * 1000}) + "\n")
    (one,) = json.loads(line(NOW, [run_dir]).removeprefix(MARK))["runs"]
    assert one["silent_s"] == 7 * 86400


def test_line_of_a_run_that_has_not_begun(tmp_path: Path) -> None:
    assert json.loads(line(NOW, [tmp_path / "run"]).removeprefix(MARK))["runs"] == [{"dir": "run"}]


def send(
    cloud: Registers,
    run_dir: Path,
    booted: float,
    mark: Path,
    on_volume: Path | None = None,
    now: float = NOW,
) -> int:
    kept: Any = cloud
    volume = on_volume or run_dir
    return beacon(
        lambda: kept, Clock(now), "r1", [run_dir], [volume], lambda text: None, booted, lambda: "i-9", mark
    )  # fmt: skip


def committed() -> Registers:
    return Registers({f"{PATH}/gen/2/claim": "i-2", f"{PATH}/gen/2/outcome": "commit:vol-2:us-east-1b"})


def test_proof_comes_with_the_first_commit_of_this_boot(run_dir: Path, tmp_path: Path) -> None:
    cloud = committed()
    assert send(cloud, run_dir, NOW - 10, tmp_path / "proved") == 0
    assert f"{PATH}/gen/2/proved" not in cloud.known
    assert send(cloud, run_dir, NOW - 100, tmp_path / "proved") == 0
    assert cloud.known[f"{PATH}/gen/2/proved"] == "vol-2"


def test_proof_is_asked_for_once(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "proved").touch()
    cloud = committed()
    send(cloud, run_dir, NOW - 100, tmp_path / "proved")
    assert f"{PATH}/gen/2/proved" not in cloud.known


def test_no_proof_without_a_checkpoint(tmp_path: Path) -> None:
    cloud = committed()
    send(cloud, tmp_path / "run", NOW - 100, tmp_path / "proved")
    assert f"{PATH}/gen/2/proved" not in cloud.known


def given_up(*words: str) -> Registers:
    return Registers({f"{PATH}/given-up/{number}": word for number, word in enumerate(words, 1)})


def test_a_machine_that_commits_ends_the_row_of_those_that_were_given_up(
    run_dir: Path, tmp_path: Path
) -> None:
    cloud = given_up("i-1", "i-2")
    send(cloud, run_dir, NOW - 10, tmp_path / "proved")
    assert f"{PATH}/given-up/3" not in cloud.known
    send(cloud, run_dir, NOW - 100, tmp_path / "proved")
    assert cloud.known[f"{PATH}/given-up/3"] == "trains:i-9"
    send(cloud, run_dir, NOW - 100, tmp_path / "proved")
    assert len(cloud.known) == 3


def test_a_row_that_has_ended_is_left_alone(run_dir: Path, tmp_path: Path) -> None:
    cloud = given_up("i-1", "up")
    send(cloud, run_dir, NOW - 100, tmp_path / "proved")
    assert len(cloud.known) == 2


def test_the_machine_that_trains_forgives_those_that_were_given_up_days_apart(
    run_dir: Path, tmp_path: Path
) -> None:
    """Three standbys; the third would be parked."""
    cloud, mark = given_up(), tmp_path / "proved"

    def row_after(seconds: float, committed: float) -> tuple[str, ...]:
        checkpoint = run_dir / "step-000000001180-a0003.h5"
        os.utime(checkpoint, (NOW + committed, NOW + committed))
        send(cloud, run_dir, NOW - 100, mark, now=NOW + seconds)
        return parse("r1", cloud.known).given_up_in_a_row

    assert row_after(0, -40) == ()
    cloud.known[f"{PATH}/given-up/1"] = "i-b"
    assert row_after(1800, 1700) == ("i-b",), "it looks once an hour"
    assert row_after(4000, -40) == ("i-b",), "it has committed nothing since"
    assert row_after(4030, 4000) == ()
    cloud.known[f"{PATH}/given-up/3"] = "i-c"
    assert row_after(90_000, 89_000) == ()


# Two tiers


def test_a_checkpoint_on_the_machines_own_drive_proves_nothing_of_the_volume(
    run_dir: Path, tmp_path: Path
) -> None:
    cloud, home = committed(), tmp_path / "volume/run"
    home.mkdir(parents=True)
    send(cloud, run_dir, NOW - 100, tmp_path / "proved", home)
    assert f"{PATH}/gen/2/proved" not in cloud.known
    copy = home / "step-000000001180-a0003.h5"
    copy.touch()
    os.utime(copy, (NOW - 40, NOW - 40))
    send(cloud, run_dir, NOW - 100, tmp_path / "proved", home)
    assert cloud.known[f"{PATH}/gen/2/proved"] == "vol-2"


def tell_home(run_dir: Path, **told: Any) -> None:
    (run_dir / "HOME_STATE.json").write_text(json.dumps({"schema": 1, "home": "rclone:x:y", **told}))


def test_work_at_risk_is_what_is_not_home(run_dir: Path) -> None:
    since = datetime.fromtimestamp(NOW - 300, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    tell_home(run_dir, attempt=3, step=1100, since=since, failure="rclone cannot copy (exit code 5)")
    told = json.loads(line(NOW, [run_dir]).removeprefix(MARK))
    (one,) = told["runs"]
    assert (one["home_step"], one["home_age_s"]) == (1100, 300)
    words = "\n".join(_progress_lines({**told, "age_s": 20}))
    assert "durable 1180 here, 1100 home, 320 s of work at risk" in words
    assert "exit code 5" in words


def test_nothing_home_is_said(run_dir: Path) -> None:
    tell_home(run_dir)
    told = json.loads(line(NOW, [run_dir]).removeprefix(MARK))
    words = "\n".join(_progress_lines({**told, "age_s": 20}))
    assert "durable 1180 here, nothing home, none home" in words
