"""Claims in S3 with an rclone that sends conditional writes (1.72 or newer), and with one that does not.

The real programs speak to moto's S3, which honours `If-None-Match: *`, through the door that sees each request.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from s3_door import Request, S3Door
from test_checkers import DEPS
from test_home_in_s3 import (
    BUCKET,
    HOLDFAST,
    HOME,
    PLACE,
    all_that_a_mirror_asks,
    door,
    holdfast,
    keys,
)

__all__ = ["door"]
NEWER = DEPS / "rclone" / "bin"
CLAIMS = f"{PLACE}/run/attempts/".removeprefix(f"{BUCKET}/")
TOKEN = re.compile(r"\.[0-9a-f]{16}$")


def take(program: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Makes it the rclone of this test. Its version."""
    if not HOLDFAST.exists():
        pytest.skip(f"{HOLDFAST} is not built")
    if not (program / "rclone").exists():
        pytest.skip(f"no program {program}/rclone (cmake/bootstrap --aws)")
    monkeypatch.setenv("PATH", f"{program}:/usr/bin:/bin")
    told = subprocess.run(["rclone", "version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(word) for word in re.findall(r"\d+", told)[:2])


def written(door: S3Door) -> list[str]:
    """What was written below attempts/ from now on, in order. A claim's token is left out."""
    found: list[str] = []

    def look(asked: Request) -> None:
        if asked.method == "PUT" and asked.key.startswith(CLAIMS):
            condition = asked.headers.get("if-none-match")
            name = TOKEN.sub(".token", asked.key[len(CLAIMS) :])
            found.append(f"if none {condition}: {name}" if condition else name)

    door.fault = look
    return found


def claim(door: S3Door, folders: Sequence[Path]) -> None:
    """As many machines at once; each starts the run on an empty disk. One of several may lose to a newer claim."""
    with ThreadPoolExecutor(len(folders)) as machines:
        ended = list(
            machines.map(
                lambda one: holdfast(
                    door, "fetch", str(one), "--from", f"rclone:{HOME}", "--home-wait", "2m"
                ),
                folders,
            )
        )
    assert any(done.returncode == 0 for done in ended), ended
    for done in ended:
        assert done.returncode == 0 or "has taken over from attempt" in done.stderr, done.stderr


def numbers() -> list[int]:
    """Of all claims."""
    return sorted(int(key[len(CLAIMS) :].partition(".")[0]) for key in keys() if TOKEN.search(key))


@pytest.mark.parametrize("program", [NEWER, Path("/usr/bin")], ids=["newer", "of_the_system"])
def test_the_number_is_written_first_where_rclone_can(
    door: S3Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    version = take(program, monkeypatch)
    seen = written(door)
    claim(door, [tmp_path / "run"])
    assert seen == (["if none *: 1", "1.token"] if version >= (1, 72) else ["1.token"])
    assert numbers() == [1]
    assert door.refused == []


def test_who_comes_second_loses_before_it_claims(
    door: S3Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine's number lies there. Its claim, which the list would show, does not yet."""
    take(NEWER, monkeypatch)
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.put_object(Bucket=BUCKET, Key=f"{CLAIMS}1", Body=b"1.00000000000000aa")
    seen = written(door)
    claim(door, [tmp_path / "run"])
    # On a busy machine rclone asks a second time.
    assert list(dict.fromkeys(seen)) == ["if none *: 1", "if none *: 2", "2.token"]
    assert s3.get_object(Bucket=BUCKET, Key=f"{CLAIMS}1")["Body"].read() == b"1.00000000000000aa"


def test_of_four_machines_no_two_claim_one_number(
    door: S3Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finds a higher claim beside its own tries again, so there may be more than four."""
    take(NEWER, monkeypatch)
    claim(door, [tmp_path / str(number) for number in range(4)])
    found = numbers()
    assert len(found) >= 4
    assert found == sorted(set(found))


def test_the_newer_rclone_needs_the_same_rights(
    door: S3Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(NEWER, monkeypatch)
    all_that_a_mirror_asks(door, tmp_path)
