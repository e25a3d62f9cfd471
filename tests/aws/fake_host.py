"""The inside of a machine, for tests: devices and mounts of the double's volumes. It asserts its rules."""

from __future__ import annotations

from fake_cloud import Content, FakeCloud

from holdfast_aws.world import Lease, Mounted


class FakeHost:
    """Outlives the processes of its machine, as the kernel does."""

    def __init__(self, cloud: FakeCloud, instance: str, boot: str = "boot-1") -> None:
        self.cloud = cloud
        self.instance = instance
        self.boot = boot
        self.mount_of: tuple[str, bool] | None = None  # volume, read only
        self.made: list[str] = []
        self.verified: list[str] = []
        self.calls: list[str] = []

    def find_device(self, volume_id: str, label: str) -> tuple[str, ...]:
        return (f"/dev/{volume_id}",) if self._here(volume_id) else ()

    def examine(self, device: str) -> str:
        return self._content(device).filesystem or "blank"

    def make_filesystem(self, device: str) -> str:
        content = self._content(device)
        assert content.filesystem is None, f"mkfs on {device}, which holds {content}"
        content.filesystem = "ext4"
        self.made.append(device)
        return "ext4"

    def check(self, device: str, content: str) -> bool:
        return True

    def mounted(self) -> Mounted | None:
        return None if self.mount_of is None else Mounted(f"/dev/{self.mount_of[0]}", self.mount_of[1])

    def mount(self, device: str, content: str, read_only: bool) -> None:
        assert self.mount_of is None
        assert self._content(device).filesystem == content
        self.mount_of = (device[len("/dev/") :], read_only)

    def unmount(self) -> None:
        self.mount_of = None

    def verify(self) -> str:
        assert self.mount_of is not None
        assert self.mount_of[1], "verified while mounted for writing"
        self.verified.append(self.mount_of[0])
        content = self.content()
        if content.damaged:
            return "step-000000000007-a0001.h5 is damaged"
        return "good" if content.expected else "nothing"

    def lease(self) -> Lease | None:
        lease = self.content().lease
        if lease is None or lease[:2] == (self.instance, self.boot):
            return None
        return Lease(lease[0], lease[1], self.cloud.clock.now() - lease[2])

    def take_lease(self) -> None:
        self.content().lease = (self.instance, self.boot, self.cloud.clock.now())

    def drop_lease(self) -> None:
        if self.mount_of is not None and not self.mount_of[1]:
            self.content().lease = None

    def content(self) -> Content:
        assert self.mount_of is not None
        return self._content(f"/dev/{self.mount_of[0]}")

    def _here(self, volume_id: str) -> bool:
        return self.cloud.plugged_into(volume_id) == self.instance

    def _content(self, device: str) -> Content:
        volume_id = device[len("/dev/") :]
        holder = self.cloud.holder_of(volume_id)
        assert holder == self.instance, f"{self.instance} touches {volume_id}, which {holder} holds"
        return self.cloud.content(volume_id)
