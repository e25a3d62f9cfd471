"""`hf-aws rehearse`: by the Fault Injection Service, or by the notice file, which test_whole_life.py plays."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from strict import REGION, StrictAws
from test_fallback import account, aws, pause, start  # noqa: F401

from holdfast_aws import rehearse
from holdfast_aws.account import Account, CommandError

ROLE = "arn:aws:iam::123456789012:role/fis"


class Fis:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**asked: Any) -> Any:
            self.calls.append((name, asked))
            return {"experimentTemplate": {"id": "EXT1"}}

        return call


def with_fis(aws: StrictAws, fis: Fis, *, dry_run: bool = False) -> Account:  # noqa: F811
    def client(name: str) -> Any:
        return fis if name == "fis" else boto3.client(name, region_name=REGION)  # type: ignore[call-overload]

    made = account(aws)
    return Account(client, dry_run=dry_run, say=lambda _: None, sleep=made.sleep, now=made.now)


def test_interrupts_the_runs_machine_and_no_other(aws: StrictAws) -> None:  # noqa: F811
    start(aws)
    pause(aws, 300)
    boto3.client("ec2", region_name=REGION).run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)
    fis = Fis()
    answer = rehearse.rehearse(with_fis(aws, fis), "r1", ROLE)
    assert [name for name, _ in fis.calls] == [
        *("create_experiment_template", "start_experiment", "delete_experiment_template")
    ]
    made = fis.calls[0][1]
    (target,) = made["targets"].values()
    assert target["resourceArns"] == [f"arn:aws:ec2:{REGION}:123456789012:instance/{answer.data['machine']}"]
    (action,) = made["actions"].values()
    assert action["actionId"] == "aws:ec2:send-spot-instance-interruptions"
    assert action["parameters"] == {"durationBeforeInterruption": "PT2M"}
    assert (made["roleArn"], fis.calls[1][1]) == (ROLE, {"experimentTemplateId": "EXT1"})


def test_dry_run_interrupts_nothing(aws: StrictAws) -> None:  # noqa: F811
    start(aws)
    pause(aws, 300)
    fis = Fis()
    rehearse.rehearse(with_fis(aws, fis, dry_run=True), "r1", ROLE)
    assert fis.calls == []


def test_an_on_demand_machine_is_never_interrupted(aws: StrictAws) -> None:  # noqa: F811
    aws.groups.capacity = {}
    start(aws)
    pause(aws, 25 * 60)
    fis = Fis()
    with pytest.raises(CommandError, match="no spot machine") as refusal:
        rehearse.rehearse(with_fis(aws, fis), "r1", ROLE)
    assert refusal.value.code == 78
    assert fis.calls == []


def test_without_the_session_manager_it_says_what_to_do(aws: StrictAws) -> None:  # noqa: F811
    start(aws)
    pause(aws, 300)
    aws.throttle = lambda operation: "InvalidInstanceId" if operation == "SendCommand" else None
    with pytest.raises(CommandError, match="--remote-shell") as refusal:
        rehearse.rehearse(account(aws), "r1")
    assert refusal.value.code == 78
