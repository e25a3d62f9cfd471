"""The secret that all nodes of a run share: made once, encrypted, within the machine's rights, in no log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from policy_eval import Call, Resource, allows
from strict import REGION, StrictAws
from test_scripts import Bench, bench  # noqa: F401
from virtual import VirtualClock

from holdfast_aws.aws import Aws
from holdfast_aws.cloud import CloudError
from holdfast_aws.nodes import SECRET_WAIT, job_secret
from holdfast_aws.policy import instance_policy
from holdfast_aws.stop import StopError

NAME = "/holdfast/r1/job-secret"
BIN = Path(os.environ["HOLDFAST_BUILD"]) / "bin"


@pytest.fixture
def aws() -> Iterator[StrictAws]:
    """It allows what the machine's policy allows."""
    policy = instance_policy("r1")

    def authorize(service: str, operation: str, params: dict[str, Any]) -> bool:
        path = params.get("Name") or params.get("Path", "")
        context = {"ssm:Overwrite": str(params["Overwrite"]).lower()} if "Overwrite" in params else {}
        resource = Resource(f"arn:aws:ssm:{REGION}:111122223333:parameter{path}")
        return allows(policy, Call(f"{service}:{operation}", [resource], None, context))

    with StrictAws(VirtualClock(), authorize=authorize) as strict:
        yield strict


def test_all_nodes_have_one(aws: StrictAws, capfd: pytest.CaptureFixture[str]) -> None:
    found = {job_secret(Aws(REGION), aws.clock, "r1") for _ in range(3)}
    (text,) = found
    assert len(text) == 64
    assert aws.log.count("PutParameter") == 1
    aws.authorize = None
    (kept,) = boto3.client("ssm", region_name=REGION).describe_parameters()["Parameters"]
    assert (kept["Name"], kept["Type"]) == (NAME, "SecureString")
    assert "".join(capfd.readouterr()) == ""


def test_each_run_has_its_own(aws: StrictAws) -> None:
    aws.authorize = None
    assert job_secret(Aws(REGION), aws.clock, "r1") != job_secret(Aws(REGION), aws.clock, "r2")


def test_another_runs_secret_is_out_of_reach(aws: StrictAws) -> None:
    with pytest.raises(StopError, match="AccessDenied") as refusal:
        job_secret(Aws(REGION), aws.clock, "r10")
    assert refusal.value.code == 75


class Cloud:
    """Encrypted parameters, and what may happen between two calls."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.blind = 0  # so many reads see nothing yet
        self.busy = 0  # so many calls are refused
        self.meanwhile: list[str] = []  # secrets that other nodes write before this one's write

    def secret(self, name: str) -> str | None:
        if self.busy:
            self.busy -= 1
            raise CloudError("ThrottlingException")
        if self.blind:
            self.blind -= 1
            return None
        return self.kept.get(name)

    def put_secret_once(self, name: str, value: str) -> bool:
        for other in self.meanwhile:
            self.kept.setdefault(name, other)
        return self.kept.setdefault(name, value) == value


def asked(cloud: Cloud) -> str:
    return job_secret(cloud, VirtualClock(), "r1")  # type: ignore[arg-type]


def test_whoever_comes_second_takes_what_is_written() -> None:
    cloud = Cloud()
    cloud.meanwhile = ["first", "other"]
    assert asked(cloud) == "first"


def test_what_is_written_may_be_shown_late() -> None:
    cloud = Cloud()
    cloud.blind = 5
    assert asked(cloud) == cloud.kept[NAME]


def test_busy_is_tried_again_and_not_for_ever() -> None:
    cloud = Cloud()
    cloud.busy = 7
    assert asked(cloud) == cloud.kept[NAME]
    cloud.busy = 10**6
    clock = VirtualClock()
    began = clock.now()
    with pytest.raises(StopError, match="ThrottlingException") as stop:
        job_secret(cloud, clock, "r1")  # type: ignore[arg-type]
    assert stop.value.code == 75
    assert clock.now() - began == SECRET_WAIT


def node(bench: Bench, hf: str = "echo s3cr3t", **environment: str) -> Any:  # noqa: F811
    place = "--nnodes 2 --node-rank 0 --master 127.0.0.1:29500"
    bench.double("hf", f"if [[ $1 == nodes ]]; then echo {place}; else {hf}; fi", folder=bench.home)
    bench.double("nvidia-smi", "echo 'GPU 0: A100'")
    show = ("sh", "-c", "echo rank has $HOLDFAST_JOB_SECRET")
    return bench.run("machine/hf-node", *show, HF_NODES="2", **environment)


def test_node_gives_it_to_its_ranks(bench: Bench) -> None:  # noqa: F811
    if not (BIN / "holdfast").exists():
        pytest.skip(f"{BIN / 'holdfast'} is not built")
    (bench.bin / "holdfast").symlink_to(BIN / "holdfast")
    assert "rank has s3cr3t" in node(bench).stdout


def test_node_keeps_it_out_of_command_lines(bench: Bench) -> None:  # noqa: F811
    bench.double("holdfast", 'echo "$HOLDFAST_JOB_SECRET"')
    done = node(bench)
    assert done.stdout == "s3cr3t\n"
    assert "s3cr3t" not in "".join(bench.calls()) + done.stderr


def test_node_takes_the_users_own(bench: Bench) -> None:  # noqa: F811
    bench.double("holdfast", 'echo "$HOLDFAST_JOB_SECRET"')
    assert node(bench, HOLDFAST_JOB_SECRET="mine").stdout == "mine\n"
    assert "hf secret" not in bench.calls()


def test_node_never_starts_without_it(bench: Bench) -> None:  # noqa: F811
    bench.double("holdfast")
    assert node(bench, hf="exit 75").returncode == 75
    assert not any(call.startswith("holdfast") for call in bench.calls())
