"""What `hf-aws logs` and `status` read: the console, prices, and what the groups remember."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import account_lab
import pytest
from account_lab import Lab
from botocore.exceptions import ClientError
from test_style import KIT

from holdfast_aws import launch, look
from holdfast_aws.cli import main
from holdfast_aws.plan import TYPES
from holdfast_aws.prices import PRICES, Price, spot_price, volume_month, with_file


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


# Prices


def test_each_price_has_its_date_and_each_type_of_a_group_a_price() -> None:
    assert {kind for types in TYPES.values() for kind in types} <= set(PRICES)
    assert not [kind for kind in PRICES if kind.startswith("p3.")]
    assert all(datetime.strptime(price.date, "%Y-%m-%d") for price in PRICES.values())
    assert PRICES["p4d.24xlarge"].dollars < 22, "AWS lowered it by a third in June 2025"


def test_the_page_names_the_dates_of_all_prices() -> None:
    page = (KIT / "README.md").read_text()
    for price in PRICES.values():
        assert price.date in page


def test_prices_of_a_file_come_first(tmp_path: Path) -> None:
    file = tmp_path / "prices"
    file.write_text(
        "# mine\n\ng5.xlarge 0.9 2026-11-28\np7.xlarge 12 2026-11-27  # new\ngp3-gib 0.1 2026-11-01\n"
    )
    prices = with_file(str(file))
    assert prices["g5.xlarge"] == Price(0.9, "2026-11-28")
    assert prices["p7.xlarge"] == Price(12, "2026-11-27")
    assert prices["p4d.24xlarge"] == PRICES["p4d.24xlarge"]
    assert volume_month(100, 3000, 125, prices) == 10


@pytest.mark.parametrize(
    "line",
    ["g5.xlarge 1.006", "g5.xlarge much 2026-11-28", "g5.xlarge 1.0 yesterday", "g5.xlarge -1 2026-11-28"],
)
def test_a_wrong_line_of_prices_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices"
    file.write_text(f"# mine\n{line}\n")
    assert main(["simulate", "--draw", "1", "--hours", "1", "--prices", str(file)], lambda name: None) == 64
    assert f"--prices {file}:2: " in capsys.readouterr().err
    assert main(["simulate", "--prices", str(tmp_path / "none")], lambda name: None) == 64


def test_a_price_that_nobody_knows_is_not_zero_in_silence(lab: Lab) -> None:
    machine = {
        "id": "i-1",
        "type": "p9.xlarge",
        "zone": "us-east-1a",
        "kind": "on-demand",
        "since": lab.clock[0] - 3600,
    }
    known = {**machine, "id": "i-2", "type": "g5.xlarge"}
    cost = look.cost(lab.another(), "r1", [], [machine, known])
    assert (cost["usd"], cost["unpriced"], cost["prices_of"]) == (1.01, ["p9.xlarge"], "2026-01-21")
    assert look.cost_line(cost) == (
        "  cost      about $1.01 for 2.0 h of 2 machine(s), "
        "without p9.xlarge, whose price is not known (--prices FILE); "
        "on-demand prices of 2026-01-21, us-east-1"
    )
    priced = look.cost(lab.another(), "r1", [], [machine], {"p9.xlarge": Price(5, "2026-11-28")})
    assert (priced["usd"], priced["unpriced"]) == (5, [])
