"""The commands of a machine as systemd starts them: environment, metadata service, AWS, exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from strict import REGION, StrictAws
from test_metadata import Service, service  # noqa: F401
from virtual import VirtualClock

from holdfast_aws import machine
from holdfast_aws.commands import Done, run

NOW = 1_800_000_000.0
KIT = Path(__file__).resolve().parents[2] / "examples" / "aws_spot"


@pytest.fixture
def aws() -> Iterator[StrictAws]:
    with StrictAws(VirtualClock()) as strict:
        yield strict


@pytest.fixture(autouse=True)
def environment(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name, value in {
        "HF_RUN": "r1",
        "HF_IMDS": service.url,
        "HF_MOUNT": str(tmp_path / "mount"),
        "HF_DEV_ROOT": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)


def launch(service: Service) -> str:  # noqa: F811
    ec2 = boto3.client("ec2", region_name=REGION)
    made = ec2.run_instances(
        ImageId="ami-12345678", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": "us-east-1a"}
    )
    name = made["Instances"][0]["InstanceId"]
    service.answers["instance-id"] = name
    return name


def test_status_of_a_run_without_volume(aws: StrictAws, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.main(["volume", "status"]) == 0
    assert "no volume yet" in capsys.readouterr().err
    assert not [call for call in aws.log if not call.startswith(("Get", "Describe"))]


def test_finish_of_a_run_that_is_not_at_its_end(aws: StrictAws) -> None:
    assert machine.main(["finish", "--exit-code", "75"]) == 0
    assert not aws.log


def test_the_exit_code_is_said() -> None:
    assert machine._exit_code(["finish", "--exit-code", "0"]) == 0
    assert machine._exit_code(["finish"]) is None
    assert machine._exit_code(["finish", "--exit-code", "TERM"]) is None


def test_a_machine_that_waits_for_its_volume_does_not_wait_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    since = tmp_path / "run/since"
    hour = 3600.0
    assert [machine.not_for_ever(75, NOW + hours * hour, since) for hours in (0, 1, 2.9, 3.1)] == [
        75,
        75,
        75,
        78,
    ]
    assert "3.1 h, paid for" in capsys.readouterr().err
    assert machine.not_for_ever(75, NOW + 4 * hour, since) == 75, "a person has started it again"
    assert machine.not_for_ever(0, NOW + 5 * hour, since) == 0
    assert machine.not_for_ever(75, NOW + 9 * hour, since) == 75
    assert machine.not_for_ever(78, NOW + 9 * hour, since) == 78


def test_sick_reports_this_instance(aws: StrictAws, service: Service) -> None:  # noqa: F811
    service.answers["instance-id"] = "i-0123456789abcdef0"
    assert machine.main(["sick"]) == 75  # moto knows no such member
    assert "SetInstanceHealth" in aws.log


def test_the_third_sick_machine_in_a_row_is_parked(
    aws: StrictAws,
    service: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []

    def runner(command: list[str], _: float) -> Done:
        ran.append(" ".join(command))
        return Done(0, "")

    monkeypatch.setattr(machine, "run", runner)
    for number, calls in (
        ("1", 1),
        ("1", 2),
        ("2", 3),
        ("3", 3),
    ):  # the first is tried twice: AWS did not answer
        service.answers["instance-id"] = f"i-{number * 17}"
        machine.main(["sick"])
        assert aws.log.count("SetInstanceHealth") == calls
    assert ran == ["systemctl stop holdfast.service", "systemctl start --no-block hf-park.service"]
    assert "3 machines in a row" in capsys.readouterr().err


def test_each_node_may_be_sick_as_often(
    aws: StrictAws,
    service: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "run", lambda *_: pytest.fail("it parks"))
    monkeypatch.setenv("HF_NODES", "2")
    for number in "12345":
        service.answers["instance-id"] = f"i-{number * 17}"
        machine.main(["sick"])
    assert aws.log.count("SetInstanceHealth") == 5


def test_lead_snapshot_without_a_volume(aws: StrictAws, service: Service) -> None:  # noqa: F811
    launch(service)
    assert machine.main(["lead-snapshot"]) == 0
    assert "CreateSnapshot" not in aws.log


@pytest.mark.parametrize("name", ["", "a b", "../x", "r1/gen", "é", "x" * 65])
def test_a_name_that_cannot_be_one_is_for_a_person(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_RUN", name)
    assert machine.main(["volume", "up"]) == 78


@pytest.mark.parametrize(
    ("name", "value"), [("HF_FILESYSTEM", "btrfs"), ("HF_SIZE_GIB", "0"), ("HF_IOPS", "6e3")]
)
def test_settings_that_cannot_be_meant_are_for_a_person(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert machine.main(["volume", "up"]) == 78


def test_no_metadata_service_is_tried_again_later(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    service.token_status = 403
    assert machine.main(["volume", "up"]) == 75


def test_unknown_words(aws: StrictAws) -> None:
    assert machine.main(["volume", "eat"]) == 64
    assert machine.main([]) == 64


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.main(["--help"]) == 0
    told = capsys.readouterr().out
    for word in ("volume up", "finish", "park", "health", "sick", "lead-snapshot"):
        assert word in told


def test_a_healthy_tick_loads_no_boto3(service: Service, tmp_path: Path) -> None:  # noqa: F811
    """In a process of its own, as the timer starts it."""
    memory = tmp_path / "health.json"
    script = f"""
import functools, pathlib, sys
from holdfast_aws import health, machine
machine.Health = functools.partial(health.Health, memory_file=pathlib.Path({str(memory)!r}))
code = machine.main(["health"])
sys.exit(code or (9 if "boto3" in sys.modules else 0))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(memory.read_text())["restarted"] == {}


def test_programs_that_are_missing_or_slow_have_codes() -> None:
    assert run(["holdfast-no-such-program"], 5).code == 127
    assert run(["sleep", "9"], 0.05).code == 124
    assert run(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == Done(3, "out\nerr")


def test_each_node_learns_its_rank(
    aws: StrictAws,
    service: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three nodes of the run, one of another run, one that is gone: of the run's, the oldest is node 0."""
    monkeypatch.setattr(machine, "SteadyClock", VirtualClock)
    ec2 = boto3.client("ec2", region_name=REGION)

    def node(run: str) -> str:
        tag = {"ResourceType": "instance", "Tags": [{"Key": "holdfast:run", "Value": run}]}
        made = ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1, TagSpecifications=[tag])
        return str(made["Instances"][0]["InstanceId"])

    lost, _, *ours = node("r1"), node("r10"), node("r1"), node("r1"), node("r1")
    ec2.terminate_instances(InstanceIds=[lost])
    told = []
    for name in ours:
        service.answers["instance-id"] = name
        assert machine.main(["nodes", "3"]) == 0
        told.append(capsys.readouterr().out.split())
    assert sorted(words[3] for words in told) == ["0", "1", "2"]
    assert len({words[5] for words in told}) == 1
    assert all(words[0::2] == ["--nnodes", "--node-rank", "--master"] for words in told)
    assert machine.main(["nodes"]) == 64
    assert machine.main(["nodes", "4"]) == 75
