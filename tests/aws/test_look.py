"""What `hf-aws logs` and `status` read: the console, prices, and what the groups remember."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import account_lab
import pytest
from account_lab import Lab
from botocore.exceptions import ClientError

from holdfast_aws import launch, look
from holdfast_aws.cli import main
from holdfast_aws.prices import spot_price, volume_month


@pytest.fixture
def lab() -> Iterator[Lab]:
    with account_lab.lab() as made:
        yield made


def stand_in(lab: Lab, service: str, double: Any) -> None:
    """Also for an account that has asked moto already."""
    lab.account._made[service] = double


class Ec2:
    """moto's, with a console and with prices. Xen machines show an old copy only."""

    def __init__(self, real: Any, *, nitro: bool = True) -> None:
        self._real = real
        self._nitro = nitro
        self.prices: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_console_output(self, **asked: Any) -> Any:
        if asked.get("Latest") and not self._nitro:
            raise ClientError({"Error": {"Code": "UnsupportedOperation", "Message": ""}}, "GetConsoleOutput")
        return {"Output": 'boot\nholdfast-status {"t": 1, "runs": []}\nstep 1  \nstep 2\n'}

    def describe_spot_price_history(self, **asked: Any) -> Any:
        if asked["InstanceTypes"] == ["x"]:
            raise ClientError(
                {"Error": {"Code": "InvalidParameterValue", "Message": ""}}, "DescribeSpotPriceHistory"
            )
        return {"SpotPriceHistory": self.prices}


@pytest.mark.parametrize("nitro", [True, False])
def test_logs_are_the_consoles_last_lines(lab: Lab, nitro: bool, capsys: pytest.CaptureFixture[str]) -> None:
    launch.up(lab.account, lab.plan())
    stand_in(lab, "ec2", Ec2(lab.client("ec2"), nitro=nitro))
    lab.calls.clear()
    assert main(["logs", "r1", "--lines", "2"], lab.client) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("== i-")
    assert lines == ["step 1", "step 2"]
    assert lab.calls == []


def test_logs_of_a_run_without_machine_are_75(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "r1"], lab.client) == 75
    assert "ledger is on its volume" in capsys.readouterr().err


def test_the_newest_spot_price_counts(lab: Lab) -> None:
    double = Ec2(lab.client("ec2"))
    stand_in(lab, "ec2", double)
    assert spot_price(lab.another(), "g5.xlarge", "us-east-1a") is None
    double.prices = [
        {"Timestamp": datetime(2026, 1, day, tzinfo=timezone.utc), "SpotPrice": f"0.{day}0"}
        for day in (1, 3, 2)
    ]
    assert spot_price(lab.another(), "g5.xlarge", "us-east-1a") == 0.30
    assert spot_price(lab.another(), "x", "us-east-1a") is None


def test_a_volumes_month() -> None:
    """The figures of the README."""
    assert round(volume_month(100, 6000, 500)) == 38
    assert round(volume_month(100, 3000, 125)) == 8


class Scaling:
    """moto's activities are always empty."""

    def __init__(self, real: Any, activities: list[Any]) -> None:
        self._real = real
        self._activities = activities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_paginator(self, call: str) -> Any:
        if call != "describe_scaling_activities":
            return self._real.get_paginator(call)
        activities = self._activities

        class Pages:
            def paginate(self, **_: Any) -> Any:
                return [{"Activities": activities}]

        return Pages()


def test_machines_that_are_gone_have_cost_money(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.up(lab.account, lab.plan(types=("g5.xlarge",)))
    monkeypatch.setattr(look, "spot_price", lambda *_: 0.5)

    def activity(what: str, hour: int, status: str = "Successful") -> Any:
        at = datetime(2026, 1, 1, hour, tzinfo=timezone.utc)
        zone = '{"Availability Zone": "us-east-1a"}'
        return {"Description": what, "StartTime": at, "EndTime": at, "StatusCode": status, "Details": zone}

    told = [
        activity("Terminating EC2 instance: i-0a", 5),
        activity("Launching a new EC2 instance.  Status Reason: no capacity", 4, "Failed"),
        activity("Launching a new EC2 instance: i-0a", 3),
    ]
    stand_in(lab, "autoscaling", Scaling(lab.client("autoscaling"), told))
    account = lab.another()
    cost = look.cost(account, "r1", account.groups("r1"), [])
    assert (cost["machines"], cost["hours"], cost["usd"]) == (1, 2.0, 1.0)
