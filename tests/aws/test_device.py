"""The device of a volume is told by its id, or not at all: the kit page's scenarios 22 and 23."""

from __future__ import annotations

from pathlib import Path

from holdfast_aws.device import find_device

VOLUME = "vol-0abc123"
SERIAL = "vol0abc123"
LOCAL = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"


def drive(root: Path, name: str, model: str, serial: str) -> None:
    device = root / "sys/block" / name / "device"
    device.mkdir(parents=True)
    (device / "model").write_text(f"{model:<40}\n")
    (device / "serial").write_text(f"{serial:<20}\n")
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev" / name).touch()


def test_the_link_by_id_wins(tmp_path: Path) -> None:
    drive(tmp_path, "nvme0n1", EBS, "vol0root")
    drive(tmp_path, "nvme1n1", EBS, SERIAL)
    links = tmp_path / "dev/disk/by-id"
    links.mkdir(parents=True)
    (links / f"nvme-Amazon_Elastic_Block_Store_{SERIAL}").symlink_to("../../nvme1n1")
    assert find_device(tmp_path, VOLUME, "/dev/sdf") == (str(tmp_path / "dev/nvme1n1"),)


def test_without_links_the_serial_number_tells(tmp_path: Path) -> None:
    drive(tmp_path, "nvme0n1", EBS, "vol0root")
    drive(tmp_path, "nvme2n1", EBS, SERIAL)
    assert find_device(tmp_path, VOLUME, "/dev/sdf") == (str(tmp_path / "dev/nvme2n1"),)


def test_an_instance_store_is_never_taken(tmp_path: Path) -> None:
    drive(tmp_path, "nvme0n1", LOCAL, "AWS1A2B3")
    drive(tmp_path, "nvme1n1", LOCAL, SERIAL)
    drive(tmp_path, "nvme2n1", EBS, "vol0root")
    assert find_device(tmp_path, VOLUME, "/dev/sdf") == ()


def test_the_only_empty_drive_is_not_guessed(tmp_path: Path) -> None:
    drive(tmp_path, "nvme0n1", EBS, "vol0root")
    drive(tmp_path, "nvme1n1", EBS, "vol0other")
    (tmp_path / "dev/xvdf").touch()
    assert find_device(tmp_path, VOLUME, "/dev/sdf") == ()


def test_two_matches_are_both_named(tmp_path: Path) -> None:
    drive(tmp_path, "nvme1n1", EBS, SERIAL)
    drive(tmp_path, "nvme2n1", EBS, SERIAL)
    assert len(find_device(tmp_path, VOLUME, "/dev/sdf")) == 2


def test_xen_keeps_the_letter_of_the_label(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/xvdf").touch()
    (tmp_path / "dev/xvdg").touch()
    assert find_device(tmp_path, VOLUME, "/dev/sdg") == (str(tmp_path / "dev/xvdg"),)
    assert find_device(tmp_path, VOLUME, "/dev/sdh") == ()
    assert find_device(tmp_path, VOLUME, "") == ()
