"""`hf volume up` and `down` as a machine runs them: its metadata service, its calls to the strict double, and real file
systems on loop devices. A run begins in one zone and moves to another with its data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import boto3
import pytest
from disks import DiskAws, Kernel, LoopDisks
from strict import REGION
from test_metadata import Service, service  # noqa: F401

from holdfast_aws import linux_host, machine
from holdfast_aws.commands import Done, run


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    if LoopDisks.why_not():
        pytest.skip(LoopDisks.why_not())
    clock = Kernel(tmp_path, LoopDisks(tmp_path))
    with DiskAws(clock):
        yield clock
        clock.disks.unplug(tmp_path / "mount")
        clock.end()


def launch(service: Service, zone: str) -> str:  # noqa: F811
    made = boto3.client("ec2", region_name=REGION).run_instances(
        ImageId="ami-12345678", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone}
    )
    name: str = made["Instances"][0]["InstanceId"]
    service.answers.update({"instance-id": name, "placement/availability-zone": zone})
    return name


def test_a_run_moves_with_its_data(
    kernel: Kernel,
    service: Service,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verified: list[Sequence[str]] = []

    def runner(command: Sequence[str], limit: float = 600) -> Done:
        if command[0] == "holdfast":
            verified.append(command)
            return Done(0, "ok")
        return run(command, limit)

    mount = tmp_path / "mount"
    monkeypatch.setattr(machine, "SteadyClock", lambda: kernel)
    monkeypatch.setattr(linux_host.LinuxHost.__init__, "__defaults__", (runner,))
    for name, value in {
        "HF_RUN": "r1",
        "HF_IMDS": service.url,
        "HF_MOUNT": str(mount),
        "HF_DEV_ROOT": str(tmp_path),
        "HF_SIZE_GIB": "1",
    }.items():
        monkeypatch.setenv(name, value)

    first = launch(service, "us-east-1a")
    code = machine.main(["volume", "up"])
    told = capsys.readouterr().err
    if "mount" in told and "permission denied" in told:
        pytest.skip("this machine may not mount")
    assert code == 0, told
    checkpoint = mount / "run" / "step-000000000007-a0001.h5"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(os.urandom(4096))
    content = checkpoint.read_bytes()
    assert machine.main(["volume", "up"]) == 0  # a second time finds all as it is
    assert machine.main(["volume", "down"]) == 0, capsys.readouterr().err
    assert not checkpoint.exists()
    boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=[first])

    launch(service, "us-east-1b")
    kernel.sleep(30)
    assert machine.main(["volume", "up"]) == 0, capsys.readouterr().err
    assert checkpoint.read_bytes() == content
    assert verified == [["holdfast", "verify", str(checkpoint)]]
    assert machine.main(["volume", "status"]) == 0
    assert "generation 2" in capsys.readouterr().err
    assert len(kernel.aws.visible_volumes) == 2
    assert not [call for call in kernel.aws.log if call.startswith("Delete")]
    assert machine.main(["volume", "down"]) == 0
