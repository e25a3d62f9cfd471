"""What EC2 says of a type decides about it: drives, EFA, GPUs. moto has what DescribeInstanceTypes answered in 2026."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import account_lab
import pytest
from account_lab import Lab

from holdfast_aws import checks, launch
from holdfast_aws.account import Account, CommandError
from holdfast_aws.cli import main
from holdfast_aws.instance_types import described
from holdfast_aws.plan import OPEN_DRIVER_IMAGE, TYPES, LaunchPlan, UsageError
from holdfast_aws.template import template

NODES = {"nodes": 2, "image": "", "setup": "true", "shared": "fs-1.fsx.us-east-1.amazonaws.com@tcp:/x"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with account_lab.lab() as made:
        yield made


def ready(lab: Lab, **changes: Any) -> LaunchPlan:
    return launch.ready(lab.another(), lab.plan(**changes))


def interfaces(plan: LaunchPlan) -> list[tuple[int, int, str]]:
    """Card, device and kind of each."""
    data = template(plan)["Resources"]["Machine"]["Properties"]["LaunchTemplateData"]
    return [
        (one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"])
        for one in data.get("NetworkInterfaces", [])
    ]


# Drives


@pytest.mark.parametrize(
    "kind",
    ["p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge", "g7e.2xlarge", "m5d.large"],
)
def test_nvme_takes_each_type_with_drives(lab: Lab, kind: str) -> None:
    assert ready(lab, nvme=True, types=(kind,)).types == (kind,)


@pytest.mark.parametrize("kind", ["g5g.xlarge", "m5.large"])
def test_nvme_refuses_a_type_without_drives(lab: Lab, kind: str) -> None:
    with pytest.raises(UsageError, match=f"--nvme: {kind} has no NVMe drives"):
        ready(lab, nvme=True, types=("g5.xlarge", kind))
    assert lab.calls == []


# EFA


@pytest.mark.parametrize(
    ("kind", "cards"),
    [
        ("g6.8xlarge", range(1)),
        ("p4d.24xlarge", range(4)),
        ("p5.48xlarge", range(32)),
        ("p5en.48xlarge", range(16)),
        ("p6-b200.48xlarge", range(8)),
        ("p6-b300.48xlarge", range(1, 17)),  # its first card speaks no EFA
    ],
)
def test_nodes_have_efa_on_each_card_that_speaks_it(lab: Lab, kind: str, cards: range) -> None:
    found = interfaces(ready(lab, types=(kind,), **NODES))
    # As AWS recommends: an ordinary interface first, which has the address; EFA beside it, without one.
    assert found[0] == (0, 0, "interface")
    assert found[1:] == [(card, 1 if card == 0 else 0, "efa-only") for card in cards]


def test_nodes_without_efa_are_said_to_train_over_tcp(lab: Lab) -> None:
    assert interfaces(ready(lab, types=("g5.xlarge",), **NODES)) == []
    assert any("g5.xlarge has no EFA: the nodes train over TCP" in text for text in lab.said)
    assert finding(lab, "EFA", types=("g5.xlarge",), **NODES) == (
        True,
        "g5.xlarge has no EFA: the nodes train over TCP",
    )
    assert finding(lab, "EFA", types=("p5.48xlarge",), **NODES) == (True, "32 network cards a node")


@pytest.mark.parametrize("other", ["g5.xlarge", "p4d.24xlarge"])
def test_nodes_of_unequal_networks_are_refused(lab: Lab, other: str) -> None:
    with pytest.raises(UsageError, match=f"--nodes: {other} and p5.48xlarge have different EFA"):
        ready(lab, types=("p5.48xlarge", other), **NODES)


def test_render_shows_what_up_would_send(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--types", "p6-b200.48xlarge", "--nodes", "2", "--shared", "fs-1.efs.amazonaws.com:/"]
    trainer = ["--setup", "true", "--", "train", "{run_dir}"]
    assert main(["render", "r1", *words, *trainer], lab.client) == 0
    data = json.loads(capsys.readouterr().out)["Resources"]["Machine"]["Properties"]["LaunchTemplateData"]
    assert len(data["NetworkInterfaces"]) == 9


def test_one_machine_needs_no_efa(lab: Lab) -> None:
    assert interfaces(ready(lab, types=("p5.48xlarge",))) == []


# Groups


GPUS = {
    "a100": "A100", "b200": "B200", "h100": "H100", "l4": "L4", "l40s": "L40S", "rtx-pro": "RTX PRO Server 6000",
}  # fmt: skip


@pytest.mark.parametrize("group", [name for name in sorted(TYPES) if name != "any"])
def test_a_group_has_the_gpu_of_its_name(lab: Lab, group: str) -> None:
    found = described(lab.another(), TYPES[group])
    assert set(found) == set(TYPES[group])
    assert {gpu["Name"] for one in found.values() for gpu in one["GpuInfo"]["Gpus"]} == {GPUS[group]}


def test_there_is_a_group_for_each_gpu_that_people_train_on() -> None:
    assert set(TYPES) == {*GPUS, "any"}


def test_types_that_ec2_no_longer_has_are_left_out_and_named(lab: Lab) -> None:
    """A group with an unknown type could not be made: "The specified instance type p3.2xlarge is not valid"."""
    made = ready(lab, types=("p3.2xlarge", "g5.xlarge"))
    assert made.types == ("g5.xlarge",)
    assert any("p3.2xlarge: EC2 does not have it in us-east-1" in text for text in lab.said)


def test_types_that_ec2_does_not_have_at_all_are_refused(lab: Lab) -> None:
    subnet = lab.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    with pytest.raises(CommandError, match="EC2 has none of p3"):
        launch.ready(lab.another(), replace(lab.plan(types=("p3.2xlarge", "p3.8xlarge")), subnets=(subnet,)))


def test_v100_is_no_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["up", "r1", "--gpu", "v100", "--setup", "true", "--", "train", "{run_dir}"], lambda name: None)
    assert end.value.code == 64
    assert "v100" in capsys.readouterr().err


# `check`


def finding(lab: Lab, what: str, **changes: Any) -> tuple[bool | None, str]:
    answer = checks.check(lab.another(), lab.plan(**changes))
    return next((one["good"], one["says"]) for one in answer.data["findings"] if one["what"] == what)


def test_check_tells_the_gpus(lab: Lab) -> None:
    assert finding(lab, "GPUs", types=("g5.xlarge", "p5.48xlarge")) == (
        True,
        "g5.xlarge: 1 x A10G; p5.48xlarge: 8 x H100",
    )


@pytest.mark.parametrize("kind", ["m5.large", "m5d.large"])
def test_check_refuses_machines_without_a_gpu_of_nvidia(lab: Lab, kind: str) -> None:
    good, says = finding(lab, "GPUs", types=(kind,))
    assert (good, f"{kind} has no NVIDIA GPU" in says) == (False, True)
    answer = checks.check(lab.another(), lab.plan(types=(kind,), gpu=False))
    assert "GPUs" not in {one["what"] for one in answer.data["findings"]}


def test_check_knows_that_the_open_driver_does_not_run_on_v100(lab: Lab) -> None:
    """P3dn has V100, too: a name that begins with p3. was not enough."""
    account: Account = lab.another()
    plan = lab.plan(types=("p3dn.24xlarge",))
    assert (
        next(f for f in checks.check(account, plan).data["findings"] if f["what"] == "GPUs")["good"] is True
    )
    answer = checks.check(account, replace(plan, machine_image=OPEN_DRIVER_IMAGE))
    found = next(f for f in answer.data["findings"] if f["what"] == "GPUs")
    assert found["good"] is False
    assert "--ami" in found["says"]
