"""What the state machine needs of the machine itself. `linux_host.py` is the real one; tests have doubles.

Errors: StopError.
"""

from __future__ import annotations

from typing import Protocol

from holdfast_aws.world import Lease, Mounted


class Host(Protocol):
    def find_device(self, volume_id: str, label: str) -> tuple[str, ...]:
        """The devices that are this volume, attached as `label`; empty while the kernel does not show it."""

    def examine(self, device: str) -> str:
        """ext4, xfs, another signature, "blank" (no signature and nothing but zeros), or "unknown data"."""

    def make_filesystem(self, device: str) -> str:
        """Makes one on a blank device, and says which."""

    def check(self, device: str, content: str) -> bool:
        """Repairs what a lost machine left behind; False when a person must."""

    def mounted(self) -> Mounted | None:
        """What is mounted on the run's mount point."""

    def mount(self, device: str, content: str, read_only: bool) -> None: ...

    def unmount(self) -> None:
        """Nothing to do when nothing is mounted."""

    def verify(self) -> str:
        """ "good", "nothing" (no checkpoint, and no sign that there was one), or what is wrong."""

    def lease(self) -> Lease | None:
        """The lease of another machine or another boot, from the mounted volume."""

    def take_lease(self) -> None: ...

    def drop_lease(self) -> None: ...
