"""Which block device an EBS volume is. The name that AttachVolume was given is a label only.

On Nitro the drive's serial number is the volume's id without the dash. On Xen the label's letter is kept.
A machine also has instance-store drives and a root volume: a drive that its id does not tell is never taken.
"""

from __future__ import annotations

from pathlib import Path

EBS_MODEL = "Amazon Elastic Block Store"


def find_device(root: Path, volume_id: str, label: str) -> tuple[str, ...]:
    """The devices that are this volume; empty while there is none. `root` is "/" but in tests."""
    serial = volume_id.replace("-", "")
    by_id = root / "dev/disk/by-id" / f"nvme-Amazon_Elastic_Block_Store_{serial}"
    if by_id.exists():
        return (str(by_id.resolve()),)
    drives = {
        path: (_read(path / "device/serial"), _read(path / "device/model"))
        for path in sorted((root / "sys/block").glob("nvme*"))
    }
    found = [path for path, (number, model) in drives.items() if number == serial and model == EBS_MODEL]
    if found or any(model == EBS_MODEL for _, model in drives.values()):
        return tuple(str(root / "dev" / path.name) for path in found)
    xen = root / "dev" / f"xvd{label[-1:]}"
    return (str(xen),) if label and xen.exists() else ()


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
