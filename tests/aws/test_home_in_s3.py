"""`--home s3`: what the machine may do in the bucket is what `holdfast mirror` needs there, no more and no less.

The real rclone and the real `holdfast mirror` speak to moto's S3 through a door that has the machine's policy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import plans
import pytest
from fake_cloud import FakeCloud
from moto import mock_aws
from policy_eval import Call, Resource, allows
from s3_door import S3Door
from virtual import VirtualClock

from holdfast_aws.cloud import CloudError
from holdfast_aws.home import home_up
from holdfast_aws.policy import instance_policy
from holdfast_aws.registers import Registers
from holdfast_aws.run_state import checkpoints
from holdfast_aws.stop import StopError
from holdfast_aws.user_data import _environment

HOLDFAST = Path(os.environ["HOLDFAST_BUILD"]) / "bin" / "holdfast"
TRAINER = HOLDFAST.with_name("resnet50_cifar10")
BUCKET, PLACE = "bucket", "bucket/runs/r1"
POLICY = instance_policy("r1", s3=PLACE)
PLAN = plans.ALL["s3"]
NIGHTLY = pytest.mark.skipif(
    "HOLDFAST_AWS_NIGHTLY" not in os.environ, reason="HOLDFAST_AWS_NIGHTLY=1 asks rclone more often"
)


def need_rclone() -> None:
    if shutil.which("rclone") is None:
        pytest.skip("no program rclone here")


@pytest.fixture
def door() -> Iterator[S3Door]:
    need_rclone()
    with mock_aws(), S3Door(POLICY) as made:
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield made


def machine(door: S3Door) -> dict[str, str]:
    """The environment of a machine's services, as user data writes it."""
    lines = (line.partition("=") for line in _environment(PLAN).splitlines())
    run_env = {name: value.strip("'") for name, _, value in lines}
    return {"PATH": os.environ["PATH"], **run_env, **door.environment()}


def rclone(door: S3Door, *words: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """As RcloneProgram calls it."""
    return subprocess.run(
        ["rclone", "--retries", "1", "--low-level-retries", "1", *words],
        input=given, env={**machine(door), **more}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def keys() -> list[str]:
    found = boto3.client("s3", region_name="us-east-1").list_objects_v2(Bucket=BUCKET)
    return [thing["Key"] for thing in found.get("Contents", [])]


# The rights, by the program that uses them.

HOME = f"holdfast:{PLACE}/run"
CHECKPOINT = "step-000000000010-a0001.h5"


def all_that_a_mirror_asks(door: S3Door, folder: Path) -> None:
    """Each of rclone's commands in lib/holdfast/mirror/rclone_home.cc: claims, copies, reading, retention."""
    small, large = folder / "small", folder / "large"
    small.write_bytes(b"x" * 1000)
    large.write_bytes(b"y" * (11 << 20))
    listing = ("lsjson", "--no-modtime", "--no-mimetype", "--files-only")
    copying = ("copyto", "--copy-links", "--ignore-times", "--no-traverse")
    missing = rclone(door, *listing, f"{HOME}/attempts")
    assert missing.returncode in (0, 3), missing.stderr  # a new run: no such folder
    for words, given in (
        (("rcat", "--header-upload=If-None-Match: *", f"{HOME}/attempts/1"), "1.0123456789abcdef"),
        (("rcat", f"{HOME}/attempts/1.0123456789abcdef"), "claim"),
        ((*listing, f"{HOME}/attempts"), ""),
        ((*listing, HOME), ""),
        # What a holder and its standby tell each other.
        (("rcat", f"{HOME}/attempts/1.holder.json"), "{}"),
        (("cat", "--no-traverse", f"{HOME}/attempts/1.holder.json"), ""),
        (("rcat", f"{HOME}/attempts/standby.json"), "{}"),
        (("deletefile", f"{HOME}/attempts/1.holder.json"), ""),
        (("deletefile", f"{HOME}/attempts/standby.json"), ""),
        ((*copying, str(small), f"{HOME}/{CHECKPOINT}"), ""),
        (("cat", f"{HOME}/{CHECKPOINT}"), ""),
        (("deletefile", f"{HOME}/{CHECKPOINT}"), ""),
        # In parts, as a checkpoint is.
        ((*copying, "--s3-upload-cutoff", "5M", str(large), f"{HOME}/{CHECKPOINT}"), ""),
        (("deletefile", f"{HOME}/attempts/1.0123456789abcdef"), ""),
        (("deletefile", f"{HOME}/attempts/1"), ""),
    ):
        done = rclone(door, *words, given=given)
        assert done.returncode == 0, f"{words}: {done.stderr}\n{door.refused}"
    for words in (("step-000000000020-a0001.h5",), ("attempts/standby.json", "--no-traverse")):
        gone = rclone(door, "cat", f"{HOME}/{words[0]}", *words[1:])
        assert (gone.returncode in (0, 3, 4), gone.stdout) == (True, "")
    assert keys() == [f"runs/r1/run/{CHECKPOINT}"]
    assert door.refused == []


@pytest.mark.parametrize("versions", ["no versions", pytest.param("versions", marks=NIGHTLY)])
def test_rclone_needs_these_rights_and_no_other(door: S3Door, tmp_path: Path, versions: str) -> None:
    if versions == "versions":
        boto3.client("s3", region_name="us-east-1").put_bucket_versioning(
            Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
        )
    all_that_a_mirror_asks(door, tmp_path)
    granted = {action for one in POLICY["Statement"] for action in as_list(one["Action"])}
    spare = {"s3:AbortMultipartUpload"}  # of an upload that fails, which none of these does
    if versions == "no versions":
        spare.add("s3:GetObjectVersion")
    assert door.asked == {action for action in granted if action.startswith("s3:")} - spare


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


@NIGHTLY
@pytest.mark.parametrize("sid", ["ListHome", "ReadHome", "WriteHome", "OwnHome", "RetainHome"])
def test_planted_policy_without_a_right(door: S3Door, tmp_path: Path, sid: str) -> None:
    door.policy = {**POLICY, "Statement": [one for one in POLICY["Statement"] if one["Sid"] != sid]}
    with pytest.raises(AssertionError):
        all_that_a_mirror_asks(door, tmp_path)


@NIGHTLY
def test_planted_prefix_that_hides_what_is_missing(door: S3Door, tmp_path: Path) -> None:
    """A condition on the prefix without IfExists: S3 answers 403 for an object that does not exist."""
    statements = [dict(one) for one in POLICY["Statement"]]
    for one in statements:
        if one["Sid"] == "ListHome":
            one["Condition"] = {"StringLike": one["Condition"]["StringLikeIfExists"]}
    door.policy = {**POLICY, "Statement": statements}
    with pytest.raises(AssertionError):
        all_that_a_mirror_asks(door, tmp_path)


@NIGHTLY
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("NO_CHECK_BUCKET", "false", "AccessDenied"), ("ACL", "private", "Access")],
)
def test_planted_remote_without_its_settings(door: S3Door, name: str, value: str, why: str) -> None:
    done = rclone(
        door, "rcat", f"{HOME}/attempts/1.0123456789abcdef", given="x", **{f"RCLONE_CONFIG_HOLDFAST_{name}": value}
    )  # fmt: skip
    assert done.returncode != 0
    assert why in done.stderr


def obj(key: str) -> Resource:
    return Resource(f"arn:aws:s3:::{BUCKET}/{key}")


def lists(**context: str) -> Call:
    return Call(
        "s3:ListBucket",
        [Resource(f"arn:aws:s3:::{BUCKET}")],
        None,
        {f"s3:{k}": v for k, v in context.items()},
    )


OWN = {"s3:x-amz-acl": "bucket-owner-full-control"}
TABLE = [
    ("lists its claims", True, lists(prefix="runs/r1/run/attempts/")),
    ("lists its checkpoints", True, lists(prefix="runs/r1/run/")),
    ("lists another run's", False, lists(prefix="runs/r10/run/")),
    ("lists the bucket by an empty prefix", False, lists(prefix="")),
    ("writes a claim", True, Call("s3:PutObject", [obj("runs/r1/run/attempts/1.ab")])),
    ("writes a checkpoint", True, Call("s3:PutObject", [obj("runs/r1/run/step-1.h5")])),
    ("writes something else", False, Call("s3:PutObject", [obj("runs/r1/run/index.html")])),
    ("writes another run's", False, Call("s3:PutObject", [obj("runs/r10/run/step-1.h5")])),
    ("reads a checkpoint", True, Call("s3:GetObject", [obj("runs/r1/run/step-1.h5")])),
    ("reads it by its version", True, Call("s3:GetObjectVersion", [obj("runs/r1/run/step-1.h5")])),
    ("reads another run's", False, Call("s3:GetObject", [obj("runs/r2/run/step-1.h5")])),
    ("reads a run of a longer name", False, Call("s3:GetObject", [obj("runs/r1/run-2/step-1.h5")])),
    ("retires a checkpoint", True, Call("s3:DeleteObject", [obj("runs/r1/run/step-1.h5")])),
    ("deletes something else", False, Call("s3:DeleteObject", [obj("runs/r1/run/notes.txt")])),
    ("deletes another run's", False, Call("s3:DeleteObject", [obj("runs/r2/run/step-1.h5")])),
    ("deletes a version", False, Call("s3:DeleteObjectVersion", [obj("runs/r1/run/step-1.h5")])),
    ("aborts its upload", True, Call("s3:AbortMultipartUpload", [obj("runs/r1/run/step-1.h5")])),
    ("keeps it to the owner", True, Call("s3:PutObjectAcl", [obj("runs/r1/run/step-1.h5")], None, OWN)),
    (
        "makes it public",
        False,
        Call("s3:PutObjectAcl", [obj("runs/r1/run/step-1.h5")], None, {"s3:x-amz-acl": "public-read"}),
    ),
    ("makes a bucket", False, Call("s3:CreateBucket", [Resource(f"arn:aws:s3:::{BUCKET}")])),
    ("deletes the bucket", False, Call("s3:DeleteBucket", [Resource(f"arn:aws:s3:::{BUCKET}")])),
    ("opens the bucket", False, Call("s3:PutBucketPolicy", [Resource(f"arn:aws:s3:::{BUCKET}")])),
    ("makes a volume", False, Call("ec2:CreateVolume", [Resource("arn:aws:ec2:::volume/v")], {"holdfast:run": "r1"})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "allowed", "call"), TABLE, ids=[row[0].replace(" ", "_") for row in TABLE])
def test_row(name: str, allowed: bool, call: Call) -> None:
    assert allows(POLICY, call) is allowed


@pytest.mark.parametrize(
    ("allowed", "call"),
    [
        (True, lists(prefix="runs/r1/runs/lr03/attempts/")),
        (True, Call("s3:PutObject", [obj("runs/r1/runs/lr03/step-1.h5")])),
        (True, Call("s3:DeleteObject", [obj("runs/r1/runs/lr03/step-1.h5")])),
        (True, Call("s3:GetObject", [obj("runs/r1/runs/lr03/step-1.h5")])),
        (False, Call("s3:PutObject", [obj("runs/r1/runs/lr03/index.html")])),
        (False, Call("s3:PutObject", [obj("runs/r1/run/step-1.h5")])),
        (False, Call("s3:DeleteObject", [obj("runs/r2/runs/lr03/step-1.h5")])),
        (False, lists(prefix="runs/r10/runs/lr03/")),
    ],
)
def test_the_runs_of_a_sweep_have_their_places(allowed: bool, call: Call) -> None:
    policy = plans.plan(
        home="s3://bucket/runs", region="us-east-1", types=("p4d.24xlarge",), slices=7, sweep=plans.SWEEP
    ).policy
    assert allows(policy, call) is allowed


@pytest.mark.parametrize("sid", ["ListHome", "ReadHome", "WriteHome", "OwnHome", "RetainHome"])
@pytest.mark.parametrize("part", ["statement", "Condition"])
def test_table_notices_what_is_missing(sid: str, part: str) -> None:
    (one,) = (s for s in POLICY["Statement"] if s["Sid"] == sid)
    if part == "Condition" and part not in one:
        pytest.skip("it has no condition")
    rest = [s for s in POLICY["Statement"] if s["Sid"] != sid]
    if part == "Condition":
        rest.append({k: v for k, v in one.items() if k != "Condition"})
    assert any(allows({**POLICY, "Statement": rest}, call) is not allowed for _, allowed, call in TABLE)


# The mirror itself.


def holdfast(door: S3Door, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HOLDFAST), *words], env=machine(door), capture_output=True, text=True, check=False, timeout=600
    )


def test_mirror_and_fetch_with_the_machines_rights(door: S3Door, tmp_path: Path) -> None:
    """A checkpoint goes home from one machine; the next one, with an empty disk, has the same bytes."""
    for program in (HOLDFAST, TRAINER):
        if not program.exists():
            pytest.skip(f"{program} is not built")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    trained = subprocess.run(
        [TRAINER, *("--data", "synthetic:64", "--width", "4", "--batch-size", "8", "--threads", "1", "--workers", "0"),
         *("--steps", "2", "--checkpoint-dir", str(first))],
        env={"PATH": "/usr/bin:/bin", "HOLDFAST_SOURCES": "signal,file,deadline", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    (newest,) = (path.name for path in checkpoints(first)[:1])
    there = f"rclone:{HOME}"
    done = holdfast(door, "mirror", str(first), "--to", there, "--once")
    assert done.returncode == 0, done.stderr
    done = holdfast(door, "fetch", str(second), "--from", there)
    assert done.returncode == 0, done.stderr
    assert (second / newest).read_bytes() == (first / newest).read_bytes()
    assert door.refused == []
    done = holdfast(door, "mirror", str(first), "--to", there, "--once")
    assert done.returncode == 76, "the second machine has claimed the run"


# The register.


def lab() -> tuple[FakeCloud, VirtualClock]:
    clock = VirtualClock()
    return FakeCloud(clock), clock


def test_home_is_said_once_and_for_all() -> None:
    cloud, clock = lab()
    assert home_up(cloud, clock, "r1", PLACE, lambda _: None) == 0
    assert home_up(cloud, clock, "r1", PLACE, lambda _: None) == 0
    assert Registers(cloud, "r1").read().home == f"s3://{PLACE}"
    with pytest.raises(StopError, match=r"are in s3://bucket/runs/r1, .* --home s3://bucket/runs ") as stop:
        home_up(cloud, clock, "r1", "elsewhere/r1", lambda _: None)
    assert stop.value.code == 78


def test_a_run_with_a_volume_never_goes_to_s3() -> None:
    cloud, clock = lab()
    registers = Registers(cloud, "r1")
    registers.claim(1, "i-1")
    with pytest.raises(StopError, match="has a volume") as stop:
        home_up(cloud, clock, "r1", PLACE, lambda _: None)
    assert stop.value.code == 78
    assert registers.read().home == ""


def test_of_two_machines_with_two_homes_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud, clock = lab()
    real = cloud.put_once

    def late(name: str, value: str) -> bool:
        real(name, "s3://elsewhere/r1")  # the other one, between our look and our write
        return real(name, value)

    monkeypatch.setattr(cloud, "put_once", late)
    with pytest.raises(StopError, match="are in s3://elsewhere/r1") as stop:
        home_up(cloud, clock, "r1", PLACE, lambda _: None)
    assert stop.value.code == 78


@pytest.mark.parametrize(("code", "ends"), [("Timeout", 75), ("AccessDeniedException", 78)])
def test_registers_that_do_not_answer_start_nothing(
    monkeypatch: pytest.MonkeyPatch, code: str, ends: int
) -> None:
    cloud, clock = lab()

    def fails(path: str) -> dict[str, str]:
        raise CloudError(code)

    monkeypatch.setattr(cloud, "parameters", fails)
    with pytest.raises(StopError) as stop:
        home_up(cloud, clock, "r1", PLACE, lambda _: None)
    assert stop.value.code == ends


@pytest.mark.parametrize(
    "code", ["503", "ServiceUnavailableException", "ExpiredTokenException", "RequestExpired", "NeverHeardOf"]
)
def test_one_answer_of_a_disturbance_is_not_for_a_person(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    cloud, clock = lab()
    real, left = cloud.parameters, [code]

    def fails_once(path: str) -> dict[str, str]:
        if left:
            raise CloudError(left.pop())
        return real(path)

    monkeypatch.setattr(cloud, "parameters", fails_once)
    assert home_up(cloud, clock, "r1", PLACE, lambda _: None) == 0
