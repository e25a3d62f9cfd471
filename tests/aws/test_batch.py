"""examples/aws_batch: the template by its checkers, the role's rights, and sweeps through a double of Batch.

The double keeps what Batch promises: a fresh disk and the same command for each attempt, SIGTERM, 30 s, SIGKILL, and
the retry strategy of the template. The task, `holdfast sweep`, the example trainer and rclone are real; S3 is moto's,
behind a door that has the role's rights.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
import yaml
from engine_double import Contract, Task, play
from experiments import BUCKET, ROOT, Experiments, first_block, need_programs
from moto import mock_aws
from policy_eval import Call, Resource, allows
from s3_door import S3Door
from test_checkers import DEPS, said

RECIPE = ROOT / "examples" / "aws_batch"
FILE = RECIPE / "template.yaml"
NIGHTLY = "HOLDFAST_AWS_NIGHTLY" in os.environ


def template() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text()))


def resource(name: str) -> dict[str, Any]:
    return dict(template()["Resources"][name]["Properties"])


def resolved(value: Any) -> Any:
    """With the bucket and the region that CloudFormation would put in."""
    if isinstance(value, list):
        return [resolved(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value == {"Ref": "AWS::Region"}:
        return "us-east-1"
    if value == {"Fn::GetAtt": ["Home", "Arn"]}:
        return f"arn:aws:s3:::{BUCKET}"
    if set(value) == {"Fn::Sub"}:
        return value["Fn::Sub"].replace("${Home.Arn}", f"arn:aws:s3:::{BUCKET}")
    return {key: resolved(one) for key, one in value.items()}


POLICY = resolved(resource("RunRole")["Policies"][0]["PolicyDocument"])


# The template.


def test_cfn_lint() -> None:
    said(DEPS / "bin" / "cfn-lint", "--non-zero-exit-code", "informational", FILE)


CHECKOV_ACCEPTED = {
    ("CKV_AWS_18", "AWS::S3::Bucket.Home"): "no access log: the bucket is one account's own checkpoints",
    (
        "CKV_AWS_21",
        "AWS::S3::Bucket.Home",
    ): "no versions: a checkpoint never changes, and retention would delete none",
}


def test_checkov() -> None:
    text = said(
        DEPS / "checkov" / "bin" / "checkov", "-f", FILE, "--framework", "cloudformation",
        "--skip-download", "--compact", "--quiet", "-o", "json", expect=None,
    )  # fmt: skip
    report = json.loads(text)
    assert report["summary"]["passed"] >= 5
    failed = {(check["check_id"], check["resource"]) for check in report["results"]["failed_checks"]}
    assert failed == set(CHECKOV_ACCEPTED)


def action(code: int | None, status: str = "", reason: str = "") -> str:
    """As Batch decides: the first rule all of whose patterns match; without one it retries."""
    told = {"OnExitCode": "" if code is None else str(code), "OnStatusReason": status, "OnReason": reason}
    for rule in resource("Job")["RetryStrategy"]["EvaluateOnExit"]:
        patterns = {key: value for key, value in rule.items() if key != "Action"}
        if all(
            told[key].startswith(value[:-1]) if value.endswith("*") else told[key] == value
            for key, value in patterns.items()
        ):
            return str(rule["Action"])
    return "RETRY"


@pytest.mark.parametrize(("code", "what"), [
    (75, "RETRY"), (74, "RETRY"), (64, "EXIT"), (76, "EXIT"), (78, "EXIT"), (1, "EXIT"), (137, "EXIT"),
])  # fmt: skip
def test_retries(code: int, what: str) -> None:
    assert action(code, "Essential container in task exited") == what


def test_retries_when_spot_takes_the_machine() -> None:
    for code in (None, 0, 75, 137, 143):
        assert action(code, "Host EC2 (instance i-0123456789abcdef0) terminated.") == "RETRY"
    assert action(None, "Task failed to start", "CannotPullContainerError: no such image") == "EXIT"
    rules = resource("Job")["RetryStrategy"]
    assert rules["Attempts"] <= 10, "Batch allows no more"
    assert len(rules["EvaluateOnExit"]) <= 5, "Batch allows no more"


def obj(key: str) -> list[Resource]:
    return [Resource(f"arn:aws:s3:::{BUCKET}/{key}")]


TABLE = [
    ("lists", True, Call("s3:ListBucket", [Resource(f"arn:aws:s3:::{BUCKET}")])),
    ("reads the experiments", True, Call("s3:GetObject", obj("sweep1/sweep.jsonl"))),
    ("changes the experiments", False, Call("s3:PutObject", obj("sweep1/sweep.jsonl"))),
    ("deletes the experiments", False, Call("s3:DeleteObject", obj("sweep1/sweep.jsonl"))),
    ("writes a claim", True, Call("s3:PutObject", obj("sweep1/lr01/attempts/1.ab"))),
    ("writes a checkpoint", True, Call("s3:PutObject", obj("sweep1/lr01/step-1-a0001.h5"))),
    ("deletes an old checkpoint", True, Call("s3:DeleteObject", obj("sweep1/lr01/step-1-a0001.h5"))),
    ("gives a checkpoint away", False,
     Call("s3:PutObjectAcl", obj("sweep1/lr01/step-1-a0001.h5"), None, {"s3:x-amz-acl": "public-read"})),
    ("reads another bucket", False, Call("s3:GetObject", [Resource("arn:aws:s3:::other/step-1")])),
    ("submits jobs", False, Call("batch:SubmitJob", [Resource("*")])),
    ("terminates machines", False, Call("ec2:TerminateInstances", [Resource("*")])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "allowed", "call"), TABLE, ids=[name.replace(" ", "_") for name, _, _ in TABLE]
)
def test_row(name: str, allowed: bool, call: Call) -> None:
    assert allows(POLICY, call) is allowed


# The submission.


def recipe() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("submit", str(RECIPE / "submit"))
    spec = importlib.util.spec_from_loader("submit", loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made


OUTPUTS = {"Home": BUCKET, "Queue": "queue", "Job": "job:1"}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """An account with the stack; what Batch was asked for. botocore checks each call by AWS's own model."""
    asked: list[dict[str, Any]] = []
    client: Callable[..., Any] = boto3.client

    def answers(service: str, **options: Any) -> Any:
        made = client(service, **{"region_name": "us-east-1", **options})
        stack = {"Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in OUTPUTS.items()]}
        well = SimpleNamespace(status_code=200)

        def submitted(params: dict[str, Any], **_: Any) -> Any:
            asked.append(json.loads(params["body"]))
            return well, {"jobId": "1234", "jobName": "n"}

        made.meta.events.register("before-call.batch.SubmitJob", submitted)
        made.meta.events.register(
            "before-call.cloudformation.DescribeStacks", lambda **_: (well, {"Stacks": [stack]})
        )
        return made

    monkeypatch.setenv("PATH", f"{os.environ['HOLDFAST_BUILD']}/bin:{os.environ['PATH']}")
    with mock_aws():
        client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        monkeypatch.setattr(boto3, "client", answers)
        yield asked


COMMAND = ["train", "--lr", "{lr}", "--seed", "{seed}", "--checkpoint-dir", "{run_dir}"]


def file_of(folder: Path, runs: int) -> str:
    file = folder / "sweep.jsonl"
    file.write_text("".join(f'{{"name": "r{n}", "lr": 0.{n + 1}, "seed": {n}}}\n' for n in range(runs)))
    return str(file)


def test_submits_an_array(account: list[dict[str, Any]], tmp_path: Path) -> None:
    need_programs()
    assert recipe().submit(["s1", file_of(tmp_path, 5), "--", *COMMAND]) == 0
    (asked,) = account
    assert (asked["jobQueue"], asked["jobDefinition"], asked["arrayProperties"]) == (
        "queue",
        "job:1",
        {"size": 5},
    )
    assert asked["containerOverrides"]["command"] == COMMAND
    assert asked["containerOverrides"]["environment"] == [{"name": "HF_SWEEP", "value": f"{BUCKET}/s1"}]
    there = boto3.client("s3").get_object(Bucket=BUCKET, Key="s1/sweep.jsonl")["Body"].read()
    assert there == (tmp_path / "sweep.jsonl").read_bytes()


def test_submits_one_run_without_an_array(account: list[dict[str, Any]], tmp_path: Path) -> None:
    need_programs()
    assert recipe().submit(["s1", file_of(tmp_path, 1), "--", *COMMAND]) == 0
    (asked,) = account
    assert "arrayProperties" not in asked
    assert {"name": "HF_INDEX", "value": "0"} in asked["containerOverrides"]["environment"]


def test_refuses_before_it_asks_for_anything(account: list[dict[str, Any]], tmp_path: Path) -> None:
    need_programs()
    made = recipe()
    two = tmp_path / "two.jsonl"
    two.write_text('{"name": "a"}\n{"name": "a"}\n')
    for words, what in (
        (["s1", str(two), "--", "train"], "line 2"),
        (["s1", file_of(tmp_path, 2), "--", "train", "{momentum}"], "momentum"),
        (["s/1", file_of(tmp_path, 2), "--", *COMMAND], "s/1"),
        (["s1", file_of(tmp_path, 2)], "two dashes"),
        (["s1", file_of(tmp_path, 2), "--", "x" * 9000], "too long"),
    ):
        with pytest.raises(made.WrongError, match=what):
            made.submit(words)
    assert account == []


# The page's first block, with programs that only tell what they were asked.


def test_first_block(tmp_path: Path) -> None:
    for program in ("docker", "aws", "submit"):
        file = tmp_path / program
        file.write_text(f'#!/bin/sh\necho {program} "$@" >>"{tmp_path}/told"\n')
        file.chmod(0o755)
    block = first_block(RECIPE / "README.md")
    assert "examples/aws_batch/submit" in block
    subprocess.run(
        ["bash", "-eu", "-c", block.replace("examples/aws_batch/submit", "submit")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd=tmp_path, check=True,
    )  # fmt: skip
    told = (tmp_path / "told").read_text()
    given = set(re.findall(r" (\w+)=", told.partition("--parameter-overrides")[2].partition("\n")[0]))
    needed = {name for name, one in template()["Parameters"].items() if "Default" not in one}
    assert given == needed
    assert f"--template-file {FILE.relative_to(ROOT)}" in told
    submitted = told.splitlines()[-1].split()
    assert submitted == ["submit", "sweep1", "sweep.jsonl", "--", *COMMAND]


# Batch.


def kills_of(runs: int, kills: int) -> list[list[str]]:
    fates: list[list[str]] = [[] for _ in range(runs)]
    chance = random.Random(43)
    for number in range(kills):
        fates[number % runs].append(chance.choice(("lost", "lost", "stopped")))
    return fates


def verdict(task: Task, code: int, lost: bool) -> str:
    if code == 0 and not lost:
        return "SUCCEEDED"
    status = "Host EC2 (instance i-1) terminated." if lost else "Essential container in task exited"
    again = action(None if lost else code, status) == "RETRY"
    return "again" if again and task.attempts < resource("Job")["RetryStrategy"]["Attempts"] else "FAILED"


@pytest.mark.parametrize(("runs", "machines", "kills"), [(5, 3, 20) if NIGHTLY else (2, 2, 3)])
def test_runs_outlive_their_machines(
    account: list[dict[str, Any]], tmp_path: Path, runs: int, machines: int, kills: int
) -> None:
    need_programs()
    assert recipe().submit(["s1", file_of(tmp_path, runs), "--", *COMMAND]) == 0
    experiments = Experiments(tmp_path / "sweep.jsonl", "s1", tmp_path)
    asked = account[0]["containerOverrides"]
    with S3Door(POLICY) as door:
        environment = {
            **{
                one["Name"]: resolved(one["Value"])
                for one in resource("Job")["ContainerProperties"]["Environment"]
            },
            **{one["name"]: one["value"] for one in asked["environment"]},
            **experiments.environment(door),
        }
        tasks = experiments.tasks(
            [str(RECIPE / "task"), *asked["command"]], environment, kills_of(runs, kills)
        )
        order = {task.name: number for number, task in enumerate(tasks)}
        batch = Contract(
            machines, 30, verdict, disk="HF_ROOT",
            index=lambda task: {
                "AWS_BATCH_JOB_ARRAY_INDEX": str(order[task.name]), "AWS_BATCH_JOB_ATTEMPT": str(task.attempts),
            },
        )  # fmt: skip
        play(tasks, batch, tmp_path, patience=300 + 60 * kills)
        assert door.refused == []
    assert [task.ended for task in tasks] == ["SUCCEEDED"] * runs, [task.said[-1] for task in tasks]
    assert sum(task.attempts for task in tasks) == runs + kills
    experiments.must_have_the_bits_of_undisturbed_ones(tasks)
